//! Compares a compiled shader with its row of kernels.zon. It checks the ids of spec constants and the push constant
//! block: addresses first, then the struct of push.h, of equal size. Capabilities must be those of every device or
//! those that `needs` names. A kernel without contraction must keep products and sums apart.
//!
//! Reads the SPIR-V words directly; names are not in an optimised module, so those are compared in the shader's text.

const std = @import("std");
const contraction = @import("contraction.zig");
const tables = @import("tables.zig");
const fail = tables.fail;

const Op = enum(u16) { capability = 17, type_float = 22, type_int = 21, type_array = 28, type_struct = 30, type_pointer = 32, constant = 43, variable = 59, decorate = 71, member_decorate = 72, _ };
const decoration_spec_id = 1;
const decoration_offset = 35;
const storage_push_constant = 9;
const magic = 0x07230203;

/// SPIR-V capabilities by what has to be there: "" for what facts.c requires of every device.
const capabilities = [_]struct { u32, []const u8 }{
    .{ 1, "" }, // Shader
    .{ 11, "" }, // Int64
    .{ 22, "" }, // Int16
    .{ 39, "" }, // Int8
    .{ 61, "" }, // GroupNonUniform
    .{ 63, "" }, // GroupNonUniformArithmetic
    .{ 4433, "" }, // StorageBuffer16BitAccess
    .{ 4448, "" }, // StorageBuffer8BitAccess
    .{ 5345, "" }, // VulkanMemoryModel
    .{ 5346, "" }, // VulkanMemoryModelDeviceScope
    .{ 5347, "" }, // PhysicalStorageBufferAddresses
    .{ 6016, "" }, // DotProductInputAll
    .{ 6017, "" }, // DotProductInput4x8Bit
    .{ 6018, "" }, // DotProductInput4x8BitPacked
    .{ 6019, "" }, // DotProduct
    .{ 65, "shuffle" }, // GroupNonUniformShuffle
    .{ 65, "coopmat" },
    .{ 62, "coopmat" }, // GroupNonUniformVote
    .{ 9, "coopmat" }, // Float16
    .{ 6022, "coopmat" }, // CooperativeMatrixKHR
    .{ 12, "int64_atomics" }, // Int64Atomics
    .{ 5116, "bfloat16" }, // BFloat16TypeKHR
    .{ 5118, "bfloat16" }, // BFloat16CooperativeMatrixKHR
};

fn granted(kernel: tables.Kernel, capability: u32) bool {
    for (capabilities) |row| {
        if (row[0] != capability) continue;
        if (row[1].len == 0) return true;
        var names = std.mem.tokenizeScalar(u8, kernel.needs, ' ');
        while (names.next()) |name| if (std.mem.eql(u8, name, row[1])) return true;
    }
    return false;
}

/// The module's instructions, indexed by result id.
const Module = struct {
    words: []const u32,
    definitions: []const ?[]const u32,

    /// Calls visit(context, opcode, operands) for every instruction of the kind.
    fn next(m: Module, at: *usize, op: Op) ?[]const u32 {
        while (at.* < m.words.len) {
            const length = m.words[at.*] >> 16;
            const instruction = m.words[at.*..][0..length];
            at.* += length;
            if (instruction[0] & 0xffff == @intFromEnum(op)) return instruction;
        }
        return null;
    }

    fn offset(m: Module, id: u32, member: u32) u32 {
        var at: usize = 5;
        while (m.next(&at, .member_decorate)) |i| {
            if (i[1] == id and i[2] == member and i[3] == decoration_offset) return i[4];
        }
        return 0;
    }

    /// Bytes of a type built of 4- and 8-byte scalars.
    fn size(m: Module, id: u32) u32 {
        const i = m.definitions[id] orelse return 0;
        return switch (@as(Op, @enumFromInt(@as(u16, @truncate(i[0]))))) {
            .type_int, .type_float => i[2] / 8,
            .type_array => m.size(i[2]) * m.definitions[i[3]].?[3],
            .type_struct => if (i.len == 2) 0 else m.offset(id, @intCast(i.len - 3)) + m.size(i[i.len - 1]),
            else => 0,
        };
    }
};

/// Fails with the kernel's name when module and table disagree.
pub fn check(arena: std.mem.Allocator, t: tables.Tables, kernel: tables.Kernel, bytes: []align(4) const u8, shader: []const u8) !void {
    const words = std.mem.bytesAsSlice(u32, bytes[0 .. bytes.len / 4 * 4]);
    if (words.len < 5 or words[0] != magic) fail("{s}: the shader compiler wrote no SPIR-V", .{kernel.name});
    const definitions = try arena.alloc(?[]const u32, words[3]);
    @memset(definitions, null);
    const m: Module = .{ .words = words, .definitions = definitions };

    var at: usize = 5;
    while (at < words.len) {
        const i = words[at..][0 .. words[at] >> 16];
        at += i.len;
        switch (@as(Op, @enumFromInt(@as(u16, @truncate(i[0]))))) {
            .type_int, .type_float, .type_array, .type_struct, .type_pointer => definitions[i[1]] = i,
            .constant, .variable => definitions[i[2]] = i,
            else => {},
        }
    }

    at = 5;
    while (m.next(&at, .capability)) |i| if (!granted(kernel, i[1]))
        fail("{s}: the shader uses SPIR-V capability {d}, which not every device has and \"{s}\" in needs does not ask for", .{ kernel.name, i[1], kernel.needs });

    if (kernel.no_contraction and (try contraction.undecorated(arena, words)).len > 0)
        fail("{s}: kernels.zon says no_contraction, and a compiler may join or split its products and sums: build.zig has to pass it through gen no_contraction", .{kernel.name});

    at = 5;
    while (m.next(&at, .decorate)) |i| if (i[2] == decoration_spec_id and i[3] >= kernel.spec.len)
        fail("{s}: the shader has constant_id {d}, kernels.zon lists {d} spec constants", .{ kernel.name, i[3], kernel.spec.len });

    at = 5;
    while (m.next(&at, .variable)) |i| if (i[3] == storage_push_constant) {
        const block = definitions[i[1]].?[3];
        const members = definitions[block].?[2..];
        const addresses = 8 * kernel.addresses();
        const expected = addresses + 4 * t.block(kernel.push).words();
        if (members.len != 2 or m.size(members[0]) != addresses or m.offset(block, 1) != addresses)
            fail("{s}: the shader's push constants do not start with the {d} addresses of kernels.zon (BUFFERS)", .{ kernel.name, kernel.addresses() });
        if (m.size(block) != expected)
            fail("{s}: the shader's push constants have {d} bytes, {d} addresses and {s} have {d}", .{ kernel.name, m.size(block), kernel.addresses(), kernel.push, expected });
    };
    checkNames(kernel, shader);
}

/// layout(constant_id = N) const uint NAME must be the N-th name of the table.
fn checkNames(kernel: tables.Kernel, shader: []const u8) void {
    var lines = std.mem.splitScalar(u8, shader, '\n');
    while (lines.next()) |line| {
        const key = "layout(constant_id = ";
        if (!std.mem.startsWith(u8, line, key)) continue;
        var words = std.mem.tokenizeAny(u8, line[key.len..], " )=;");
        const id = std.fmt.parseInt(u32, words.next() orelse "", 10) catch continue;
        _ = words.next(); // const
        _ = words.next(); // type
        const name = words.next() orelse continue;
        if (id >= kernel.spec.len or !std.mem.eql(u8, kernel.spec[id], name))
            fail("{s}: {s}.comp calls constant {d} {s}, kernels.zon {s}", .{ kernel.name, kernel.file, id, name, if (id < kernel.spec.len) kernel.spec[id] else "does not have it" });
    }
}
