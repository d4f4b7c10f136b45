//! Forbids the driver's compiler to join or split products and sums: adds NoContraction to every float operation of a module.
//!
//! Without it a compiler may turn x * y + z into one rounding or fma(x, y, z) into two, differently in each kernel.
//! Kernels that must give the same bits in several forms are marked `no_contraction` in kernels.zon; where they want a
//! fused operation they write fma. GLSL's `precise` says the same, but optimisers lose it, so this runs after them.

const std = @import("std");

const decorate = 71;
const no_contraction = 42;
const ext_inst = 12;
const fma = 50; // of GLSL.std.450, the only extended set of our shaders

/// The module with the decorations in place.
pub fn forbid(arena: std.mem.Allocator, module: []align(4) const u8) ![]const u8 {
    const words = std.mem.bytesAsSlice(u32, module);
    const missing = try undecorated(arena, words);
    var at: usize = 5;
    while (at < words.len and words[at] & 0xffff != decorate) at += words[at] >> 16;
    var added: std.ArrayList(u32) = .empty;
    for (missing) |id| try added.appendSlice(arena, &.{ 3 << 16 | decorate, id, no_contraction });
    return std.mem.sliceAsBytes(try std.mem.concat(arena, u32, &.{ words[0..at], added.items, words[at..] }));
}

/// Results of float operations that a compiler may still join or split.
pub fn undecorated(arena: std.mem.Allocator, words: []const u32) ![]const u32 {
    const decorated = try arena.alloc(bool, words[3]); // by `precise`, or here
    @memset(decorated, false);
    var found: std.ArrayList(u32) = .empty;
    var at: usize = 5;
    while (at < words.len) { // decorations come first
        const i = words[at..][0 .. words[at] >> 16];
        const op = i[0] & 0xffff;
        if (op == decorate and i[2] == no_contraction) decorated[i[1]] = true;
        if (joinable(op, i) and !decorated[i[2]]) try found.append(arena, i[2]);
        at += i.len;
    }
    return found.items;
}

fn joinable(op: u32, instruction: []const u32) bool {
    return switch (op) {
        127, 129, 131, 133, 136, 142, 148 => true, // FNegate, FAdd, FSub, FMul, FDiv, VectorTimesScalar, Dot
        ext_inst => instruction[4] == fma,
        else => false,
    };
}
