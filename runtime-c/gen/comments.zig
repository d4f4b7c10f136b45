//! Removes comments from the tables, which are C headers and ZON, and hashes the rest: the ABI hash depends on code alone.

const std = @import("std");

/// A copy of C or ZON text in which spaces stand for comments. Line ends stay, so a line keeps its number.
pub fn blank(arena: std.mem.Allocator, text: []const u8) ![]const u8 {
    const copy = try arena.dupe(u8, text);
    var at: usize = 0;
    while (at < text.len) {
        const rest = text[at..];
        const end = if (std.mem.startsWith(u8, rest, "//"))
            std.mem.indexOfScalarPos(u8, text, at, '\n') orelse text.len
        else if (std.mem.startsWith(u8, rest, "/*"))
            (std.mem.indexOfPos(u8, text, at + 2, "*/") orelse text.len -| 2) + 2
        else {
            at = if (text[at] == '"') endOfString(text, at) else at + 1;
            continue;
        };
        for (copy[at..end]) |*c| if (c.* != '\n') {
            c.* = ' ';
        };
        at = end;
    }
    return copy;
}

/// The place after the quote that closes the string at `open`, or the end of its line.
fn endOfString(text: []const u8, open: usize) usize {
    var at = open + 1;
    while (at < text.len and text[at] != '"' and text[at] != '\n') at += if (text[at] == '\\') 2 else 1;
    return @min(at + 1, text.len);
}

/// Hash of texts without comments. White space counts as little as comments do.
pub fn hashTexts(texts: []const []const u8) u32 {
    var hash: std.hash.Fnv1a_32 = .init();
    for (texts) |text| for (text) |c| {
        if (!std.ascii.isWhitespace(c)) hash.update(&.{c});
    };
    return hash.final();
}

fn hashOf(text: []const u8) !u32 {
    var arena: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena.deinit();
    return hashTexts(&.{try blank(arena.allocator(), text)});
}

test "comments and white space leave the hash as it is" {
    const code = "#define A 1\nuint32_t f(void);\n";
    for ([_][]const u8{
        "// head\n#define A 1 // one\n\n  uint32_t f(void);",
        "/* head */ #define A 1\nuint32_t /* of \"two\n * lines // here */ f(void);\n",
        "/**/#define A 1\nuint32_t f(void); // /* not opened\n",
        "#define A 1\nuint32_t f(void); /* not closed",
    }) |same| try std.testing.expectEqual(try hashOf(code), try hashOf(same));
    for ([_][]const u8{
        "#define A 2\nuint32_t f(void);\n",
        "#define A 1\n/* uint32_t f(void); */\n",
        "#define A 1\n// uint32_t f(void);\n",
        "#define A 1 /* one */ 1\nuint32_t f(void);\n",
    }) |other| try std.testing.expect(try hashOf(code) != try hashOf(other));
}

test "a string is no comment, whatever is in it" {
    try std.testing.expect(try hashOf(".{ \"a//b\" }") != try hashOf(".{ \"a//c\" }"));
    try std.testing.expect(try hashOf(".{ \"/*\", 1, \"*/\" }") != try hashOf(".{ \"/*\", 2, \"*/\" }"));
    try std.testing.expect(try hashOf("\"\\\"//\", 1") != try hashOf("\"\\\"//\", 2"));
    try std.testing.expectEqual(try hashOf("\"\\\\\", 1"), try hashOf("\"\\\\\", 1 // 2"));
}

test "lines keep their numbers" {
    const text = try blank(std.testing.allocator, "a /* 1\n2\n*/ b // c\nd");
    defer std.testing.allocator.free(text);
    try std.testing.expectEqualStrings("a     \n \n   b     \nd", text);
}
