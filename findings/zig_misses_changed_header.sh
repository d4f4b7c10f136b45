#!/usr/bin/env bash
# Zig: after a rebuild for one C file, changes of the headers of the others are no longer seen, and the old program counts as built.
#
# Software: Zig 0.16.0 from PyPI (ziglang).
# Expected: `zig build` compiles a C file again where a header that it includes has changed. It does so after a first build.
# Seen: a build in which one C file changed takes the objects of the other files from its cache. The list of files on which the program depends
# is then written without the headers of those objects. So the next change of such a header is not seen, by `zig build` nor after a touch of the
# header. It is seen again after a change of the C file that includes it.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install -q ziglang==0.16.0
export ZIG_GLOBAL_CACHE_DIR=$folder/global
cat >build.zig <<'ZIG'
const std = @import("std");
pub fn build(b: *std.Build) void {
    const module = b.createModule(.{ .target = b.graph.host, .optimize = .ReleaseFast, .link_libc = true });
    module.addCSourceFiles(.{ .files = &.{ "number.c", "main.c" } });
    b.installArtifact(b.addExecutable(.{ .name = "program", .root_module = module }));
}
ZIG
cat >number.c <<'C'
#include "number.h"
int number(void) { return NUMBER; }
C
cat >main.c <<'C'
#include <stdio.h>
int number(void);
int main(void) { printf("first %d\n", number()); return 0; }
C
built() {
    sleep 2 # so that no two versions of a file have one time
    v/bin/python -m ziglang build
    zig-out/bin/program
}
echo '#define NUMBER 1' >number.h
found=$(built)
echo '#define NUMBER 22' >number.h
found+=", $(built)"
sed -i 's/first/second/' main.c
found+=", $(built)"
echo '#define NUMBER 333' >number.h
found+=", $(built)"
echo '// a comment' >>number.c
found+=", $(built)"
echo "$found"
[ "$found" = "first 1, first 22, second 22, second 22, second 333" ]
