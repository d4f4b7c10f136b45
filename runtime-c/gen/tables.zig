//! Reads the tables that hold the truth: kernels.zon, push.h, the `#define`s of plan.h and dtype.h, elementwise.h, vk_runtime.h.
//!
//! The headers are written in a small grammar on purpose (4-byte scalars, one declaration a line), so scanning lines is
//! enough. Any other text stops the build with file, line and the expected form.

const std = @import("std");
const comments = @import("comments.zig");
const kernel_rows = @import("kernel_rows.zig");
const Allocator = std.mem.Allocator;

pub const Kernel = kernel_rows.Kernel;

/// A buffer of a kernel: "name:rw?" split.
pub const Buffer = struct {
    name: []const u8,
    read: bool,
    write: bool,
    optional: bool,

    pub fn parse(text: []const u8) ?Buffer {
        const colon = std.mem.indexOfScalar(u8, text, ':') orelse return null;
        var access = text[colon + 1 ..];
        const optional = std.mem.endsWith(u8, access, "?");
        if (optional) access = access[0 .. access.len - 1];
        const read = std.mem.startsWith(u8, access, "r");
        const write = std.mem.endsWith(u8, access, "w");
        if (access.len != @as(usize, @intFromBool(read)) + @intFromBool(write) or access.len == 0) return null;
        return .{ .name = text[0..colon], .read = read, .write = write, .optional = optional };
    }
};

pub const Field = struct { name: []const u8, type: []const u8, count: u32 };
pub const Block = struct {
    name: []const u8,
    fields: []const Field,

    pub fn words(block: Block) u32 {
        var sum: u32 = 0;
        for (block.fields) |f| sum += f.count;
        return sum;
    }
};

pub const Constant = struct { name: []const u8, value: i64 };

/// One name of elementwise.h. `results[d]` is the result of domain d (float, int, uint), null if it has no row; `math` says that its
/// row of floats is long.
pub const Elementwise = struct { name: []const u8, id: u32, arity: u32, results: [3]?Domain, math: bool };
pub const Domain = enum { float, int, uint };

pub const Parameter = struct { name: []const u8, type: []const u8 };
pub const Function = struct { name: []const u8, doc: []const []const u8, result: []const u8, parameters: []const Parameter };

pub const Tables = struct {
    kernels: []const Kernel,
    blocks: []const Block,
    plan: []const Constant,
    dtype: []const Constant,
    elementwise: []const Elementwise,
    functions: []const Function,
    enums: []const Constant,
    hash: u32,

    pub fn block(t: Tables, name: []const u8) Block {
        for (t.blocks) |b| if (std.mem.eql(u8, b.name, name)) return b;
        fail("kernels.zon: no struct {s} in push.h", .{name});
    }
};

/// Paths of the inputs, in the order in which build.zig passes them.
pub const Sources = struct { kernels: []const u8, push: []const u8, plan: []const u8, dtype: []const u8, elementwise: []const u8, states: []const u8, runtime: []const u8 };

pub fn fail(comptime format: []const u8, args: anytype) noreturn {
    std.debug.print("error: " ++ format ++ "\n", args);
    std.process.exit(1);
}

pub fn load(arena: Allocator, io: std.Io, sources: Sources) !Tables {
    var read: [7][:0]const u8 = undefined;
    var texts: [7][]const u8 = undefined;
    inline for (std.meta.fields(Sources), &read, &texts) |field, *file, *text| {
        file.* = try readFile(arena, io, @field(sources, field.name));
        text.* = try comments.blank(arena, file.*);
    }
    const t: Tables = .{
        .kernels = parseKernels(arena, read[0]),
        .blocks = try parseBlocks(arena, texts[1]),
        .plan = try parseDefines(arena, texts[2]),
        .dtype = try parseDefines(arena, texts[3]),
        .elementwise = try parseElementwise(arena, texts[4]),
        .functions = try parseFunctions(arena, read[6]),
        .enums = try parseEnums(arena, texts[6]),
        .hash = comments.hashTexts(&texts),
    };
    checkKernels(t);
    return t;
}

pub fn readFile(arena: Allocator, io: std.Io, path: []const u8) ![:0]const u8 {
    return std.Io.Dir.cwd().readFileAllocOptions(io, path, arena, .limited(64 << 20), .@"4", 0) catch |err|
        fail("{s}: {t}", .{ path, err });
}

fn parseKernels(arena: Allocator, text: [:0]const u8) []const Kernel {
    var diagnostics: std.zon.parse.Diagnostics = .{};
    const table = std.zon.parse.fromSliceAlloc(kernel_rows.Table, arena, text, &diagnostics, .{}) catch
        fail("kernels.zon: {f}", .{diagnostics});
    return kernel_rows.flatten(arena, table) catch |err| fail("kernels.zon: {t}", .{err});
}

/// Limits that every device grants (128 bytes of push constants) and that plan.h sets.
fn checkKernels(t: Tables) void {
    for (t.kernels, 0..) |kernel, i| {
        for (t.kernels[0..i]) |other| if (std.mem.eql(u8, other.name, kernel.name)) fail("kernels.zon: {s} is there twice", .{kernel.name});
        for (kernel.buffers) |b| if (Buffer.parse(b) == null) fail("kernels.zon: {s}: expected a buffer \"name:r|w|rw[?]\", found \"{s}\"", .{ kernel.name, b });
        for (kernel.columns) |b| if (if (Buffer.parse(b)) |column| column.optional else true) fail("kernels.zon: {s}: expected a column \"name:r|w|rw\", found \"{s}\"", .{ kernel.name, b });
        const bytes = kernel.addresses() * 8 + t.block(kernel.push).words() * 4;
        if (bytes > 128) fail("kernels.zon: {s}: addresses and {s} take {d} bytes of push constants, at most 128 are sure", .{ kernel.name, kernel.push, bytes });
        if (kernel.buffers.len > constant(t.plan, "PLAN_MAX_BUFFERS")) fail("kernels.zon: {s} has more than PLAN_MAX_BUFFERS buffers", .{kernel.name});
        if (kernel.columns.len > constant(t.plan, "PLAN_MAX_COLUMNS")) fail("kernels.zon: {s} has more than PLAN_MAX_COLUMNS columns", .{kernel.name});
        if (kernel.spec.len > constant(t.plan, "PLAN_MAX_SPEC")) fail("kernels.zon: {s} has more than PLAN_MAX_SPEC spec constants", .{kernel.name});
        if (kernel.spec.len == 0 or !std.mem.eql(u8, kernel.spec[0], "THREADS")) fail("kernels.zon: {s}: the first spec constant must be THREADS", .{kernel.name});
        _ = needBits(kernel);
    }
}

/// Names for `needs`; position i is bit i of KernelRow.needs.
const features = [_][]const u8{ "coopmat", "shuffle", "int64_atomics", "wasm", "bfloat16", "narrow" };

pub fn needBits(kernel: Kernel) u32 {
    var bits: u32 = 0;
    var names = std.mem.tokenizeScalar(u8, if (kernel.file.len == 0) "wasm" else kernel.needs, ' ');
    next: while (names.next()) |name| {
        for (features, 0..) |feature, i| if (std.mem.eql(u8, name, feature)) {
            bits |= @as(u32, 1) << @intCast(i);
            continue :next;
        };
        fail("kernels.zon: {s}: unknown feature \"{s}\" in needs", .{ kernel.name, name });
    }
    return bits;
}

fn constant(list: []const Constant, name: []const u8) i64 {
    for (list) |c| if (std.mem.eql(u8, c.name, name)) return c.value;
    fail("no #define {s}", .{name});
}

/// struct NAME { (uint|int|float) name[count]; … };
fn parseBlocks(arena: Allocator, text: []const u8) ![]const Block {
    var blocks: std.ArrayList(Block) = .empty;
    var fields: std.ArrayList(Field) = .empty;
    var name: ?[]const u8 = null;
    var lines = std.mem.splitScalar(u8, text, '\n');
    var number: u32 = 0;
    while (lines.next()) |raw| {
        number += 1;
        const line = std.mem.trim(u8, raw, " \t\r");
        if (line.len == 0) continue;
        if (name == null) {
            if (std.mem.startsWith(u8, line, "struct ") and std.mem.endsWith(u8, line, "{")) name = std.mem.trim(u8, line[7 .. line.len - 1], " ");
        } else if (std.mem.startsWith(u8, line, "}")) {
            try blocks.append(arena, .{ .name = name.?, .fields = try fields.toOwnedSlice(arena) });
            name = null;
        } else try fields.append(arena, parseField(line) orelse
            fail("push.h:{d}: expected \"uint|int|float name[count];\", found \"{s}\"", .{ number, line }));
    }
    return blocks.items;
}

fn parseField(line: []const u8) ?Field {
    if (!std.mem.endsWith(u8, line, ";")) return null;
    const space = std.mem.indexOfScalar(u8, line, ' ') orelse return null;
    const types = std.StaticStringMap([]const u8).initComptime(.{ .{ "uint", "u32" }, .{ "int", "i32" }, .{ "float", "f32" } });
    const kind = types.get(line[0..space]) orelse return null;
    var name = std.mem.trim(u8, line[space + 1 .. line.len - 1], " ");
    var count: u32 = 1;
    if (std.mem.indexOfScalar(u8, name, '[')) |open| {
        if (name[name.len - 1] != ']') return null;
        count = std.fmt.parseInt(u32, name[open + 1 .. name.len - 1], 10) catch return null;
        name = name[0..open];
    }
    if (!isIdentifier(name) or count == 0) return null;
    return .{ .name = name, .type = kind, .count = count };
}

fn isIdentifier(text: []const u8) bool {
    for (text) |c| if (!std.ascii.isAlphanumeric(c) and c != '_') return false;
    return text.len > 0 and !std.ascii.isDigit(text[0]);
}

/// #define NAME integer. Include guards and function-like macros are passed over.
fn parseDefines(arena: Allocator, text: []const u8) ![]const Constant {
    var constants: std.ArrayList(Constant) = .empty;
    var lines = std.mem.splitScalar(u8, text, '\n');
    while (lines.next()) |raw| {
        var words = std.mem.tokenizeAny(u8, raw, " \t\r");
        if (!std.mem.eql(u8, words.next() orelse "", "#define")) continue;
        const name = words.next() orelse continue;
        const value = words.next() orelse continue;
        if (!isIdentifier(name)) continue;
        const number = std.fmt.parseInt(i64, std.mem.trimEnd(u8, value, "uU"), 0) catch fail("#define {s}: expected an integer, found \"{s}\"", .{ name, value });
        try constants.append(arena, .{ .name = name, .value = number });
    }
    return constants.items;
}

/// Rows <domains>_<result><arity>(id, name, body); the head of elementwise.h says what the letters mean.
fn parseElementwise(arena: Allocator, text: []const u8) ![]const Elementwise {
    var rows: std.ArrayList(Elementwise) = .empty;
    var lines = std.mem.splitScalar(u8, text, '\n');
    var number: u32 = 0;
    while (lines.next()) |raw| {
        number += 1;
        const line = std.mem.trim(u8, raw, " \t\r");
        const open = std.mem.indexOfScalar(u8, line, '(') orelse continue;
        const underscore = std.mem.indexOfScalar(u8, line[0..open], '_') orelse continue;
        if (open != underscore + 3 or std.mem.indexOfNone(u8, line[0..underscore], "FIU") != null) continue;
        var arguments = std.mem.splitScalar(u8, line[open + 1 ..], ',');
        const id = std.fmt.parseInt(u32, arguments.first(), 10) catch fail("elementwise.h:{d}: expected an id, found \"{s}\"", .{ number, line });
        const name = std.mem.trim(u8, arguments.next() orelse "", " ");
        const arity: u32 = line[open - 1] - '0';
        const row = for (rows.items) |*r| {
            if (r.id == id or std.mem.eql(u8, r.name, name)) break r;
        } else blk: {
            try rows.append(arena, .{ .name = name, .id = id, .arity = arity, .results = @splat(null), .math = false });
            break :blk &rows.items[rows.items.len - 1];
        };
        if (row.id != id or row.arity != arity or !std.mem.eql(u8, row.name, name)) fail("elementwise.h:{d}: {s} differs from an earlier row in id, name or arity", .{ number, name });
        for (line[0..underscore]) |letter| {
            const domain = domainOf(letter).?;
            const slot = &row.results[@intFromEnum(domain)];
            if (slot.* != null) fail("elementwise.h:{d}: {s} already has a {t} row", .{ number, name, domain });
            const result = line[open - 2];
            row.math = row.math or result == 'M';
            slot.* = if (result == 'S' or result == 'M') domain else domainOf(result) orelse fail("elementwise.h:{d}: unknown result '{c}'", .{ number, result });
        }
    }
    return rows.items;
}

fn domainOf(letter: u8) ?Domain {
    return switch (letter) {
        'F' => .float,
        'I' => .int,
        'U' => .uint,
        else => null,
    };
}

/// VKRT_API result name(parameters); with the comment above it.
fn parseFunctions(arena: Allocator, text: []const u8) ![]const Function {
    var functions: std.ArrayList(Function) = .empty;
    var doc: std.ArrayList([]const u8) = .empty;
    var lines = std.mem.splitScalar(u8, text, '\n');
    while (lines.next()) |raw| {
        const line = std.mem.trim(u8, raw, " \t\r");
        if (std.mem.startsWith(u8, line, "//")) {
            try doc.append(arena, std.mem.trim(u8, line[2..], " "));
            continue;
        }
        if (std.mem.startsWith(u8, line, "VKRT_API ")) {
            const open = std.mem.indexOfScalar(u8, line, '(') orelse fail("vk_runtime.h: expected a whole declaration on one line: {s}", .{line});
            const close = std.mem.indexOfScalar(u8, line, ')') orelse fail("vk_runtime.h: expected a whole declaration on one line: {s}", .{line});
            const head = splitDeclarator(line["VKRT_API ".len..open]);
            var parameters: std.ArrayList(Parameter) = .empty;
            var list = std.mem.splitScalar(u8, line[open + 1 .. close], ',');
            while (list.next()) |item| {
                const p = std.mem.trim(u8, item, " ");
                if (p.len == 0 or std.mem.eql(u8, p, "void")) continue;
                try parameters.append(arena, splitDeclarator(p));
            }
            try functions.append(arena, .{ .name = head.name, .doc = try doc.toOwnedSlice(arena), .result = head.type, .parameters = parameters.items });
        }
        doc.clearRetainingCapacity();
    }
    return functions.items;
}

/// "const uint32_t *words" as an FFI type and a name.
fn splitDeclarator(text: []const u8) Parameter {
    var start = text.len;
    while (start > 0 and (std.ascii.isAlphanumeric(text[start - 1]) or text[start - 1] == '_')) start -= 1;
    const c_type = std.mem.trim(u8, text[0..start], " ");
    const types = std.StaticStringMap([]const u8).initComptime(.{
        .{ "uint32_t", "u32" }, .{ "int32_t", "i32" }, .{ "uint64_t", "u64" }, .{ "double", "f64" }, .{ "float", "f32" },
    });
    const ffi = if (std.mem.endsWith(u8, c_type, "*")) "buffer" else types.get(c_type) orelse
        fail("vk_runtime.h: no FFI type for \"{s}\"", .{text});
    return .{ .name = text[start..], .type = ffi };
}

/// Enumerators of unnamed enums.
fn parseEnums(arena: Allocator, text: []const u8) ![]const Constant {
    var constants: std.ArrayList(Constant) = .empty;
    var rest: []const u8 = text;
    while (std.mem.indexOf(u8, rest, "enum {")) |at| {
        const end = std.mem.indexOfScalarPos(u8, rest, at, '}') orelse fail("vk_runtime.h: enum without end", .{});
        var next: i64 = 0;
        var list = std.mem.splitScalar(u8, rest[at + "enum {".len .. end], ',');
        while (list.next()) |item| {
            var parts = std.mem.splitScalar(u8, item, '=');
            const name = std.mem.trim(u8, parts.first(), " \r\n");
            if (name.len == 0) continue;
            if (parts.next()) |value| next = std.fmt.parseInt(i64, std.mem.trim(u8, value, " \r\n"), 0) catch fail("vk_runtime.h: {s}: expected an integer", .{name});
            try constants.append(arena, .{ .name = name, .value = next });
            next += 1;
        }
        rest = rest[end..];
    }
    return constants.items;
}
