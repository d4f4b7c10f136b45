//! Writes the layouts of shaders/states.zon as GLSL and as TypeScript; that file says what its fields mean.

const std = @import("std");
const fail = @import("tables.zig").fail;
const Allocator = std.mem.Allocator;
const Writer = std.Io.Writer;

pub const State = struct {
    name: []const u8,
    doc: []const u8,
    sizes: []const []const u8,
    derived: []const Derived = &.{},
    parts: []const Part,
    alignment: u32 = 1,
    layers: ?struct { count: []const u8, parts: []const Part } = null,

    /// The parts that lie last.
    fn group(state: State) []const Part {
        return if (state.layers) |layers| layers.parts else state.parts;
    }
};

pub const Derived = struct { name: []const u8, value: []const u8 };
pub const Part = struct { name: []const u8, bytes: []const u8, count: []const u8 = "", alignment: u32 = 1 };

pub fn parse(arena: Allocator, text: [:0]const u8) []const State {
    var diagnostics: std.zon.parse.Diagnostics = .{};
    const states = std.zon.parse.fromSliceAlloc([]const State, arena, text, &diagnostics, .{}) catch fail("states.zon: {f}", .{diagnostics});
    // Offsets are constants of a shader, so only the last size may be known later than they.
    for (states) |state| {
        const last = &state.group()[state.group().len - 1];
        for ([_][]const Part{ state.parts, state.group() }) |parts| for (parts) |*part| {
            if (isLate(part.bytes) and part != last) fail("states.zon: {s}: only the last part may depend on what is known late, {s} does", .{ state.name, part.name });
        };
    }
    return states;
}

/// Whether an expression has a name in small letters.
fn isLate(expression: []const u8) bool {
    for (expression) |c| if (std.ascii.isLower(c)) return true;
    return false;
}

/// Cuts an expression into words (names and numbers) and the text between them.
const Words = struct {
    text: []const u8,
    at: usize = 0,

    fn next(words: *Words) ?[]const u8 {
        if (words.at == words.text.len) return null;
        const first = words.at;
        const inside = isWord(words.text[first]);
        while (words.at < words.text.len and isWord(words.text[words.at]) == inside) words.at += 1;
        return words.text[first..words.at];
    }

    fn isWord(c: u8) bool {
        return std.ascii.isAlphanumeric(c) or c == '_';
    }
};

// ---- GLSL ---------------------------------------------------------------------------------------------------------------

pub fn glsl(arena: Allocator, state: State) ![]const u8 {
    var out: Writer.Allocating = .init(arena);
    const w = &out.writer;
    try w.print("// {s}\n// Written from shaders/states.zon by the build.\n\n", .{state.doc});
    for (state.derived) |d| try w.print("const uint {s} = {s};\n", .{ d.name, try unsigned(arena, d.value) });
    const end = try glslParts(arena, w, state.parts);
    if (state.layers) |layers| {
        try w.print("const uint AT_LAYERS = {s};\n\n// From the first byte of a layer on.\n", .{end});
        const bytes = try glslParts(arena, w, layers.parts);
        try w.print("\nuint layer_bytes() {{ return {s}; }}\n", .{bytes});
        try w.print("uint layer_at(uint layer) {{ return AT_LAYERS + layer % {s} * layer_bytes(); }}\n", .{layers.count});
        try w.print("uint state_bytes() {{ return {s}; }}\n", .{try glslAligned(arena, try std.fmt.allocPrint(arena, "AT_LAYERS + {s} * layer_bytes()", .{layers.count}), state.alignment)});
    } else try w.print("const uint AT_END = {s};\n", .{try glslAligned(arena, end, state.alignment)});
    return out.written();
}

/// Offsets of parts, and the offset after the last one.
fn glslParts(arena: Allocator, w: *Writer, parts: []const Part) ![]const u8 {
    var at: []const u8 = "0u";
    for (parts) |part| {
        const name = try std.ascii.allocUpperString(arena, part.name);
        const bytes = try unsigned(arena, part.bytes);
        try w.print("const uint AT_{s} = {s};\n", .{ name, try glslAligned(arena, at, part.alignment) });
        if (part.count.len > 0) try w.print("const uint BYTES_{s} = {s};\n", .{ name, bytes });
        at = if (part.count.len > 0) try std.fmt.allocPrint(arena, "AT_{s} + {s} * BYTES_{s}", .{ name, part.count, name }) else try std.fmt.allocPrint(arena, "AT_{s} + {s}", .{ name, bytes });
    }
    return at;
}

fn glslAligned(arena: Allocator, at: []const u8, alignment: u32) ![]const u8 {
    return if (alignment == 1) at else std.fmt.allocPrint(arena, "({s} + {d}u) / {d}u * {d}u", .{ at, alignment - 1, alignment, alignment });
}

/// An expression of uint; names in small letters are push constants.
fn unsigned(arena: Allocator, expression: []const u8) ![]const u8 {
    var out: Writer.Allocating = .init(arena);
    var words: Words = .{ .text = expression };
    while (words.next()) |word| {
        const prefix = if (std.ascii.isLower(word[0])) "pc.p." else "";
        try out.writer.print("{s}{s}{s}", .{ prefix, word, if (std.ascii.isDigit(word[0])) "u" else "" });
    }
    return out.written();
}

// ---- TypeScript ---------------------------------------------------------------------------------------------------------

const note = "// Generated by `zig build gen`; do not edit.\n";

const head =
    \\// deno-fmt-ignore-file
    \\/**
    \\ * The layouts of shaders/states.zon: what lies where in the memory that the phases of a decoder share.
    \\ *
    \\ * @module
    \\ */
    \\
    \\function aligned(at: number, alignment: number): number {
    \\  return Math.ceil(at / alignment) * alignment;
    \\}
    \\
;

pub fn typescript(arena: Allocator, states: []const State) ![]const u8 {
    var out: Writer.Allocating = .init(arena);
    const w = &out.writer;
    try w.writeAll(note ++ head);
    for (states) |state| {
        var results: std.ArrayList([]const u8) = .empty;
        var body: Writer.Allocating = .init(arena);
        for (state.derived) |d| {
            const quotient = std.mem.indexOfScalar(u8, d.value, '/') != null;
            try body.writer.print("  const {s} = {s}{s}{s};\n", .{ d.name, if (quotient) "Math.floor(" else "", d.value, if (quotient) ")" else "" });
            try results.append(arena, d.name);
        }
        const end = try typescriptParts(arena, &body.writer, state.parts, &results);
        if (state.layers) |layers| {
            try body.writer.print("  const layers = {s};\n", .{end});
            const bytes = try typescriptParts(arena, &body.writer, layers.parts, &results);
            try body.writer.print("  const layerBytes = {s};\n  const bytes = {s};\n", .{ bytes, try typescriptAligned(arena, try std.fmt.allocPrint(arena, "layers + {s} * layerBytes", .{layers.count}), state.alignment) });
            try results.appendSlice(arena, &.{ "layers", "layerBytes" });
        } else try body.writer.print("  const bytes = {s};\n", .{try typescriptAligned(arena, end, state.alignment)});
        try results.append(arena, "bytes");
        try w.print("\n/** {s} */\nexport function {s}State(\n  sizes: Readonly<Record<", .{ state.doc, state.name });
        try alternatives(w, state.sizes);
        try w.writeAll(", number>>,\n): Readonly<Record<\n  ");
        try alternatives(w, results.items);
        try w.writeAll(",\n  number\n>> {\n  const { ");
        try list(w, state.sizes);
        try w.print(" }} = sizes;\n{s}  return {{\n    ", .{body.written()});
        try list(w, results.items);
        try w.writeAll(",\n  };\n}\n");
    }
    return out.written();
}

fn typescriptParts(arena: Allocator, w: *Writer, parts: []const Part, results: *std.ArrayList([]const u8)) ![]const u8 {
    var at: []const u8 = "0";
    for (parts) |part| {
        const name = try camel(arena, part.name);
        try w.print("  const {s} = {s};\n", .{ name, try typescriptAligned(arena, at, part.alignment) });
        try results.append(arena, name);
        if (part.count.len > 0) {
            const bytes = try std.fmt.allocPrint(arena, "{s}Bytes", .{name});
            try w.print("  const {s} = {s};\n", .{ bytes, part.bytes });
            try results.append(arena, bytes);
            at = try std.fmt.allocPrint(arena, "{s} + {s} * {s}", .{ name, part.count, bytes });
        } else at = try std.fmt.allocPrint(arena, "{s} + {s}", .{ name, part.bytes });
    }
    return at;
}

fn typescriptAligned(arena: Allocator, at: []const u8, alignment: u32) ![]const u8 {
    return if (alignment == 1) at else std.fmt.allocPrint(arena, "aligned({s}, {d})", .{ at, alignment });
}

/// rope_angles is ropeAngles.
fn camel(arena: Allocator, name: []const u8) ![]const u8 {
    var out: Writer.Allocating = .init(arena);
    var parts = std.mem.splitScalar(u8, name, '_');
    try out.writer.writeAll(parts.first());
    while (parts.next()) |part| try out.writer.print("{c}{s}", .{ std.ascii.toUpper(part[0]), part[1..] });
    return out.written();
}

fn alternatives(w: *Writer, names: []const []const u8) !void {
    for (names, 0..) |name, i| try w.print("{s}\"{s}\"", .{ if (i > 0) " | " else "", name });
}

fn list(w: *Writer, names: []const []const u8) !void {
    for (names, 0..) |name, i| try w.print("{s}{s}", .{ if (i > 0) ", " else "", name });
}
