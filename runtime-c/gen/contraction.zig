//! Forbids the driver's compiler to join or split products and sums: adds NoContraction to every float operation of a module.
//!
//! Without it a compiler may turn x * y + z into one rounding or fma(x, y, z) into two, differently in each kernel. Kernels that must
//! give the same bits in several forms are marked `exact` in kernels.zon; where they want a fused operation they write fma. GLSL's
//! `precise` says the same, but optimisers lose it, so this runs behind them.

const std = @import("std");

const decorate = 71;
const no_contraction = 42;
const ext_inst = 12;
const fma = 50; // of GLSL.std.450, the only extended set of our shaders

/// The module's words with the decorations in place.
pub fn forbid(arena: std.mem.Allocator, words: []const u32) ![]const u32 {
    var added: std.ArrayList(u32) = .empty;
    var annotations: ?usize = null;
    const decorated = try arena.alloc(bool, words[3]); // by `precise`
    @memset(decorated, false);
    var at: usize = 5;
    while (at < words.len) {
        const i = words[at..][0 .. words[at] >> 16];
        const op = i[0] & 0xffff;
        if (op == decorate and annotations == null) annotations = at;
        if (op == decorate and i[2] == no_contraction) decorated[i[1]] = true;
        if (joinable(op, i) and !decorated[i[2]]) try added.appendSlice(arena, &.{ 3 << 16 | decorate, i[2], no_contraction });
        at += i.len;
    }
    const place = annotations orelse words.len;
    return std.mem.concat(arena, u32, &.{ words[0..place], added.items, words[place..] });
}

fn joinable(op: u32, instruction: []const u32) bool {
    return switch (op) {
        127, 129, 131, 133, 136, 142, 148 => true, // FNegate, FAdd, FSub, FMul, FDiv, VectorTimesScalar, Dot
        ext_inst => instruction[4] == fma,
        else => false,
    };
}
