//! Makes the float16 of a module's matrices bfloat16, for glslc that does not know GL_EXT_bfloat16.
//!
//! A matrix product shader only passes its operands on: words go through memory into matrices. The float type of
//! matrices A and B says once how to read the words. So the same GLSL serves both: `OpTypeFloat 16` gets the encoding
//! BFloat16KHR, and the capabilities and the extension of SPV_KHR_bfloat16 take the place of Float16. A value, a sum or
//! a variable of float16 would change its meaning with the type; a module that has one is refused.

const std = @import("std");
const tables = @import("tables.zig");
const fail = tables.fail;

const Op = enum(u16) {
    extension = 10,
    capability = 17,
    type_float = 22,
    type_vector = 23,
    type_array = 28,
    type_runtime_array = 29,
    type_struct = 30,
    type_pointer = 32,
    type_function = 33,
    constant = 43,
    type_matrix = 4456, // OpTypeCooperativeMatrixKHR
    _,
};
const float16_capability = 9;
const bfloat16_encoding = 0;
const accumulator = 2;
const name = words("SPV_KHR_bfloat16");
/// Words that are added after a module's own capabilities: BFloat16TypeKHR, BFloat16CooperativeMatrixKHR, the extension.
const head = [_]u32{ first(.capability, 2), 5116, first(.capability, 2), 5118, first(.extension, 1 + name.len) } ++ name;

/// The module over bfloat16; fails with the kernel's name where float16 is more than the element of matrices A and B.
pub fn convert(arena: std.mem.Allocator, kernel: []const u8, module: []align(4) const u8) ![]const u8 {
    const source = std.mem.bytesAsSlice(u32, module);
    const values = try arena.alloc(u32, source[3]); // of constants, by id
    var half: ?u32 = null;
    var out: std.ArrayList(u32) = .empty;
    try out.appendSlice(arena, source[0..5]);
    var at: usize = 5;
    var added = false;
    while (at < source.len) {
        const i = source[at..][0 .. source[at] >> 16];
        at += i.len;
        const op: Op = @enumFromInt(@as(u16, @truncate(i[0])));
        if (op == .capability and i[1] == float16_capability) continue;
        if (op != .capability and !added) {
            try out.appendSlice(arena, &head);
            added = true;
        }
        if (op == .constant) values[i[2]] = i[3];
        if (op == .type_float and i[2] == 16) {
            half = i[1];
            try out.appendSlice(arena, &.{ first(.type_float, 4), i[1], 16, bfloat16_encoding });
            continue;
        }
        if (half) |id| if (forbidden(op, i, id, values)) fail("{s}: float16 may only be the element of matrices A and B, which become bfloat16; instruction {d} has more of it", .{ kernel, @intFromEnum(op) });
        try out.appendSlice(arena, i);
    }
    if (half == null) fail("{s}: kernels.zon says bfloat16, and the shader has no float16 that could become it", .{kernel});
    return std.mem.sliceAsBytes(out.items);
}

/// Whether an instruction makes a value, or a type for values, of the float type, or of sums of it.
fn forbidden(op: Op, i: []const u32, half: u32, values: []const u32) bool {
    return switch (op) {
        .type_vector, .type_array, .type_runtime_array => i[2] == half,
        .type_pointer => i[3] == half,
        .type_struct, .type_function => std.mem.indexOfScalar(u32, i[2..], half) != null,
        .type_matrix => i[2] == half and values[i[6]] == accumulator,
        else => i.len > 1 and i[1] == half, // as the type of a result
    };
}

/// The first word of an instruction.
fn first(op: Op, length: u32) u32 {
    return length << 16 | @intFromEnum(op);
}

/// A text as SPIR-V stores it: terminated by a 0, in words from the low byte.
fn words(comptime text: []const u8) [text.len / 4 + 1]u32 {
    var list = [_]u32{0} ** (text.len / 4 + 1);
    for (text, 0..) |byte, at| list[at / 4] |= @as(u32, byte) << @intCast(at % 4 * 8);
    return list;
}
