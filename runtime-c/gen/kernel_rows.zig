//! The grammar of shaders/kernels.zon, which build.zig imports and the generator parses: families of kernels, and lists that
//! several of them share.

const std = @import("std");
const Allocator = std.mem.Allocator;

/// The whole of kernels.zon; its head says what the fields mean.
pub const Table = struct { lists: []const List, families: []const Family };

/// The names that "...name" stands for.
pub const List = struct { name: []const u8, items: []const []const u8 };

/// Kernels with the same buffers, push block and specialization constants.
pub const Family = struct {
    file: []const u8 = "",
    buffers: []const []const u8,
    columns: []const []const u8 = &.{},
    push: []const u8,
    spec: []const []const u8,
    needs: []const u8 = "",
    wasm: bool = false,
    chunks: u8 = 0,
    no_contraction: bool = false,
    kernels: []const Member,
};

/// The fields of one kernel of a family.
pub const Member = struct {
    name: []const u8,
    defines: []const []const u8 = &.{},
    needs: []const u8 = "",
    spec: []const []const u8 = &.{},
};

/// One kernel with all that its family says.
pub const Kernel = struct {
    name: []const u8,
    file: []const u8,
    defines: []const []const u8,
    buffers: []const []const u8,
    columns: []const []const u8,
    push: []const u8,
    spec: []const []const u8,
    needs: []const u8,
    wasm: bool,
    chunks: u8,
    no_contraction: bool,

    /// Addresses in the push constants.
    pub fn addresses(kernel: Kernel) usize {
        return kernel.buffers.len + @intFromBool(kernel.columns.len > 0);
    }
};

/// All kernels in the order of their ids. Fails on a "...name" without a list.
pub fn flatten(arena: Allocator, table: Table) error{ OutOfMemory, NoSuchList }![]const Kernel {
    var kernels: std.ArrayList(Kernel) = .empty;
    for (table.families) |family| for (family.kernels) |member| {
        var spec: std.ArrayList([]const u8) = .empty;
        try expand(arena, table, family.spec, &spec);
        try spec.appendSlice(arena, member.spec);
        var buffers: std.ArrayList([]const u8) = .empty;
        try expand(arena, table, family.buffers, &buffers);
        try kernels.append(arena, .{
            .name = member.name,
            .file = family.file,
            .defines = member.defines,
            .buffers = buffers.items,
            .columns = family.columns,
            .push = family.push,
            .spec = spec.items,
            .needs = try std.mem.join(arena, " ", if (family.needs.len == 0) &.{member.needs} else if (member.needs.len == 0) &.{family.needs} else &.{ family.needs, member.needs }),
            .wasm = family.wasm,
            .chunks = family.chunks,
            .no_contraction = family.no_contraction,
        });
    };
    return kernels.items;
}

fn expand(arena: Allocator, table: Table, items: []const []const u8, out: *std.ArrayList([]const u8)) error{ OutOfMemory, NoSuchList }!void {
    for (items) |item| {
        if (!std.mem.startsWith(u8, item, "...")) {
            try out.append(arena, item);
            continue;
        }
        const list = for (table.lists) |list| {
            if (std.mem.eql(u8, list.name, item[3..])) break list;
        } else return error.NoSuchList;
        try expand(arena, table, list.items, out);
    }
}
