//! Builds the native side of vkmx: shaders, libvk_runtime, the WASM kernels, and the files generated from the tables.
//!
//!   zig build             libvk_runtime with its shaders, into zig-out/lib
//!   zig build gen         the committed generated files: src/backend/kernels.ts, src/schedule/decoder/states.ts, ffi/symbols.ts, ffi/wasm_*module.ts
//!   zig build generated   the same files into zig-out/generated, for comparison
//!   zig build spirv-val   validates every SPIR-V module
//!   zig build table       the kernel table with its shaders as an object, for a build of the C files by another compiler
//!   zig build platforms   compiles the C files for every release platform, without optimization and without linking
//!   zig build cross       the library for every platform that releases are made for, into zig-out/cross
//!
//! shaders/kernels.zon decides what there is: a kernel is a shader here, a function in the WASM module, and an id in TypeScript.

const std = @import("std");
const Build = std.Build;
const LazyPath = Build.LazyPath;
const kernel_rows = @import("runtime-c/gen/kernel_rows.zig");
const Kernel = kernel_rows.Kernel;

const kernel_table: kernel_rows.Table = @import("shaders/kernels.zon");

/// The platforms of releases, by the names that Deno has for them.
const cross_targets = [_]struct { name: []const u8, triple: []const u8 }{
    .{ .name = "x86_64-linux", .triple = "x86_64-linux-gnu.2.28" },
    .{ .name = "aarch64-linux", .triple = "aarch64-linux-gnu.2.28" },
    .{ .name = "x86_64-windows", .triple = "x86_64-windows-gnu" },
    .{ .name = "aarch64-darwin", .triple = "aarch64-macos" },
};

const c_flags = [_][]const u8{ "-std=c11", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden" };

pub fn build(b: *Build) void {
    // With glibc 2.28 as the floor the library loads on any distribution since 2018.
    const target = b.standardTargetOptions(.{ .default_target = portableHost(b) });
    const optimize = b.option(std.builtin.OptimizeMode, "optimize", "Optimization of the library (default ReleaseFast)") orelse .ReleaseFast;

    const generator = b.addExecutable(.{
        .name = "gen",
        .root_module = b.createModule(.{ .root_source_file = b.path("runtime-c/gen.zig"), .target = b.graph.host, .optimize = .Debug }),
    });
    const sources = generateSources(b, generator);
    const states = generateStates(b, generator);
    const shaders = compileShaders(b, generator, states.includes);
    const table = embedShaders(b, generator, shaders);
    const wasm_module = encodeModule(b, generator, wasmModule(b, sources.wasm_table, .alone), .alone);
    const wasm_threads_module = encodeModule(b, generator, wasmModule(b, sources.wasm_table, .threads), .threads);

    const library = runtimeLibrary(b, target, optimize, table);
    const install = b.addInstallArtifact(library, .{ .dest_dir = .{ .override = .lib }, .implib_dir = .disabled, .pdb_dir = .disabled });
    b.getInstallStep().dependOn(&install.step);

    // One update a file: tables reach TypeScript even while a C file does not compile.
    const gen = b.step("gen", "Write the committed generated files");
    const generated = b.step("generated", "Write the generated files to zig-out/generated");
    for ([_]struct { LazyPath, []const u8 }{
        .{ sources.kernels, "src/backend/kernels.ts" },
        .{ states.typescript, "src/schedule/decoder/states.ts" },
        .{ sources.symbols, "ffi/symbols.ts" },
        .{ wasm_module, "ffi/wasm_module.ts" },
        .{ wasm_threads_module, "ffi/wasm_threads_module.ts" },
    }) |file| {
        const update = b.addUpdateSourceFiles();
        update.addCopyFileToSource(file[0], file[1]);
        gen.dependOn(&update.step);
        generated.dependOn(&b.addInstallFile(file[0], b.fmt("generated/{s}", .{file[1]})).step);
    }

    const validate = b.step("spirv-val", "Validate every SPIR-V module");
    const validator = findValidator(b);
    const version = validatorVersion(b, validator);
    for (shaders) |shader| if (shader.spirv) |spirv| {
        if (version < leastVersion(shader.kernel)) continue;
        const run = b.addSystemCommand(&.{ validator, "--target-env", "vulkan1.3" });
        run.setName(b.fmt("spirv-val {s}", .{shader.kernel.name}));
        run.addFileArg(spirv);
        run.expectExitCode(0);
        validate.dependOn(&run.step);
    };

    const table_step = b.step("table", "Write the kernel table as an object to zig-out/table");
    table_step.dependOn(&b.addInstallFile(tableObject(b, target, table).getEmittedBin(), "table/kernel_table.o").step);

    const platforms = b.step("platforms", "Compile the C files for every release platform, without linking");
    const cross = b.step("cross", "Build the library for every release platform");
    for (cross_targets) |platform| {
        const query = std.Target.Query.parse(.{ .arch_os_abi = platform.triple }) catch unreachable;
        const other = b.resolveTargetQuery(query);
        platforms.dependOn(&b.addLibrary(.{ .name = "vk_runtime", .linkage = .static, .root_module = runtimeModule(b, other, .Debug, table) }).step);
        const folder: Build.InstallDir = .{ .custom = b.fmt("cross/{s}", .{platform.name}) };
        const built = runtimeLibrary(b, other, optimize, table);
        const installed = b.addInstallArtifact(built, .{ .dest_dir = .{ .override = folder }, .implib_dir = .disabled, .pdb_dir = .disabled });
        cross.dependOn(&installed.step);
    }
}

/// The machine's platform at its baseline: on Linux an old glibc, and no instructions that only this CPU has.
fn portableHost(b: *Build) std.Target.Query {
    const host = b.graph.host.result;
    return .{
        .cpu_arch = host.cpu.arch,
        .cpu_model = .baseline,
        .os_tag = host.os.tag,
        .abi = if (host.os.tag == .macos) .none else .gnu,
        .glibc_version = if (host.os.tag == .linux) .{ .major = 2, .minor = 28, .patch = 0 } else null,
    };
}

// ---- generated files ----------------------------------------------------------------------------------------------------

/// Passes what the generator reads, in the order of tables.Sources.
fn addTableArgs(b: *Build, run: *Build.Step.Run) void {
    for ([_][]const u8{
        "shaders/kernels.zon",     "shaders/include/push.h",        "shaders/include/plan.h",
        "shaders/include/dtype.h", "shaders/include/elementwise.h", "shaders/states.zon",
        "runtime-c/vk_runtime.h",
    }) |path| run.addFileArg(b.path(path));
}

const Sources = struct { kernels: LazyPath, symbols: LazyPath, wasm_table: LazyPath };

fn generateSources(b: *Build, generator: *Build.Step.Compile) Sources {
    const run = b.addRunArtifact(generator);
    run.addArg("sources");
    addTableArgs(b, run);
    return .{
        .kernels = run.addOutputFileArg("kernels.ts"),
        .symbols = run.addOutputFileArg("symbols.ts"),
        .wasm_table = run.addOutputFileArg("wasm_table.c"),
    };
}

const States = struct { typescript: LazyPath, includes: LazyPath };

/// The layouts of states.zon; shaders include theirs as generated/<name>_state.glsl.
fn generateStates(b: *Build, generator: *Build.Step.Compile) States {
    const run = b.addRunArtifact(generator);
    run.addArg("states");
    run.addFileArg(b.path("shaders/states.zon"));
    const typescript = run.addOutputFileArg("states.ts");
    const folder = b.addWriteFiles();
    for ([_][]const u8{ "decode", "gemv", "batch" }) |name| {
        run.addArg(name);
        const file = b.fmt("{s}_state.glsl", .{name});
        _ = folder.addCopyFile(run.addOutputFileArg(file), b.fmt("generated/{s}", .{file}));
    }
    return .{ .typescript = typescript, .includes = folder.getDirectory() };
}

/// The kernel table in C, with the SPIR-V beside it for #embed. The generator checks each module against its row.
fn embedShaders(b: *Build, generator: *Build.Step.Compile, shaders: []const Shader) LazyPath {
    const run = b.addRunArtifact(generator);
    run.addArg("spirv");
    addTableArgs(b, run);
    const folder = b.addWriteFiles();
    const table = folder.addCopyFile(run.addOutputFileArg("kernel_table.c"), "kernel_table.c");
    for (shaders) |shader| {
        run.addArg(shader.kernel.name);
        if (shader.spirv) |spirv| {
            run.addFileArg(shader.source);
            run.addFileArg(spirv);
            _ = folder.addCopyFile(spirv, b.fmt("{s}.spv", .{shader.kernel.name}));
        } else run.addArgs(&.{ "-", "-" });
    }
    return table;
}

fn encodeModule(b: *Build, generator: *Build.Step.Compile, module: LazyPath, threads: Threads) LazyPath {
    const run = b.addRunArtifact(generator);
    run.addArg("module");
    run.addFileArg(module);
    const text = run.addOutputFileArg("wasm_module.ts");
    run.addArg(@tagName(threads));
    return text;
}

// ---- shaders ------------------------------------------------------------------------------------------------------------

const Shader = struct { kernel: Kernel, source: LazyPath, spirv: ?LazyPath };

/// One glslc run per row. glslc writes which files a shader includes, so an edit recompiles exactly those that see it.
fn compileShaders(b: *Build, generator: *Build.Step.Compile, includes: LazyPath) []const Shader {
    const glslc = findGlslc(b);
    const has_matrices = compiles(b, glslc);
    const kernels = kernel_rows.flatten(b.allocator, kernel_table) catch |err| std.debug.panic("kernels.zon: {t}", .{err});
    const shaders = b.allocator.alloc(Shader, kernels.len) catch @panic("OOM");
    for (kernels, shaders) |kernel, *shader| {
        shader.* = .{ .kernel = kernel, .source = b.path(b.fmt("shaders/{s}.comp", .{kernel.file})), .spirv = null };
        if (kernel.file.len == 0) continue;
        if (!needs(kernel, "coopmat") or has_matrices) {
            shader.spirv = compileShader(b, glslc, shader.*, includes);
            if (kernel.no_contraction) shader.spirv = forbidContraction(b, generator, shader.*);
            if (needs(kernel, "bfloat16")) shader.spirv = matricesOfBfloat16(b, generator, shader.*);
        } else {
            std.debug.print("left out: {s} ({s} is too old for {s})\n", .{ kernel.name, glslc orelse "no glslc", kernel.needs });
        }
    }
    return shaders;
}

fn compileShader(b: *Build, glslc: ?[]const u8, shader: Shader, includes: LazyPath) LazyPath {
    const run = b.addSystemCommand(&.{ glslc orelse "glslc", "--target-env=vulkan1.3", "-O", "-MD" });
    run.setName(b.fmt("glslc {s}", .{shader.kernel.name}));
    if (glslc == null) run.step.dependOn(&b.addFail("glslc was not found: install it, run `deno task setup`, or pass -Dglslc=PATH").step);
    run.addPrefixedDirectoryArg("-I", b.path("shaders"));
    run.addPrefixedDirectoryArg("-I", includes);
    for (shader.kernel.defines) |define| run.addArg(b.fmt("-D{s}", .{define}));
    run.addArg("-MF");
    _ = run.addDepFileOutputArg("shader.d");
    run.addArg("-o");
    const spirv = run.addOutputFileArg("shader.spv");
    run.addFileArg(shader.source);
    return spirv;
}

/// After glslc's optimiser, which loses GLSL's `precise`.
fn forbidContraction(b: *Build, generator: *Build.Step.Compile, shader: Shader) LazyPath {
    const run = b.addRunArtifact(generator);
    run.setName(b.fmt("no_contraction {s}", .{shader.kernel.name}));
    run.addArg("no_contraction");
    run.addFileArg(shader.spirv.?);
    return run.addOutputFileArg("no_contraction.spv");
}

/// glslc writes float16 for them.
fn matricesOfBfloat16(b: *Build, generator: *Build.Step.Compile, shader: Shader) LazyPath {
    const run = b.addRunArtifact(generator);
    run.setName(b.fmt("bfloat16 {s}", .{shader.kernel.name}));
    run.addArgs(&.{ "bfloat16", shader.kernel.name });
    run.addFileArg(shader.spirv.?);
    return run.addOutputFileArg("bfloat16.spv");
}

fn needs(kernel: Kernel, feature: []const u8) bool {
    return std.mem.indexOf(u8, kernel.needs, feature) != null;
}

/// -Dglslc, then $GLSLC, then what `deno task setup` provided, then the PATH.
fn findGlslc(b: *Build) ?[]const u8 {
    const own = b.pathFromRoot(".tools/glslc/glslc");
    return b.option([]const u8, "glslc", "Path of glslc") orelse
        b.graph.environ_map.get("GLSLC") orelse
        if (exists(b, own)) own else b.findProgram(&.{"glslc"}, &.{}) catch null;
}

/// Whether glslc knows cooperative matrices, the one feature of `needs` that not every glslc compiles.
fn compiles(b: *Build, glslc: ?[]const u8) bool {
    const probe = b.pathFromRoot("shaders/probe/coopmat.comp");
    var code: u8 = undefined;
    _ = b.runAllowFail(&.{ glslc orelse return false, "--target-env=vulkan1.3", "-o", "-", probe }, &code, .ignore) catch return false;
    return true;
}

/// The spirv-val that `deno task setup` provided beside its glslc, or that of the PATH.
fn findValidator(b: *Build) []const u8 {
    const own = b.pathFromRoot(".tools/glslc/spirv-val");
    return if (exists(b, own)) own else "spirv-val";
}

/// Year * 100 + release of spirv-val ("SPIRV-Tools v2023.1 …"); 0 where it does not tell.
fn validatorVersion(b: *Build, validator: []const u8) u32 {
    var code: u8 = undefined;
    const text = b.runAllowFail(&.{ validator, "--version" }, &code, .ignore) catch return 0;
    const at = std.mem.indexOf(u8, text, " v") orelse return 0;
    var numbers = std.mem.tokenizeAny(u8, text[at + 2 ..], ".~- \n");
    const year = std.fmt.parseInt(u32, numbers.next() orelse "", 10) catch return 0;
    const release = std.fmt.parseInt(u32, numbers.next() orelse "", 10) catch return 0;
    return year * 100 + release;
}

/// The first spirv-val that knows what a kernel needs.
fn leastVersion(kernel: Kernel) u32 {
    return if (needs(kernel, "bfloat16")) 2025_02 else if (kernel.needs.len > 0) 2023_04 else 0;
}

fn exists(b: *Build, path: []const u8) bool {
    std.Io.Dir.cwd().access(b.graph.io, path, .{}) catch return false;
    return true;
}

// ---- C ------------------------------------------------------------------------------------------------------------------

fn runtimeLibrary(b: *Build, target: Build.ResolvedTarget, optimize: std.builtin.OptimizeMode, table: LazyPath) *Build.Step.Compile {
    return b.addLibrary(.{ .name = "vk_runtime", .linkage = .dynamic, .root_module = runtimeModule(b, target, optimize, table) });
}

fn runtimeModule(b: *Build, target: Build.ResolvedTarget, optimize: std.builtin.OptimizeMode, table: LazyPath) *Build.Module {
    const module = b.createModule(.{ .target = target, .optimize = optimize, .link_libc = true, .pic = true, .strip = optimize != .Debug });
    module.addCSourceFiles(.{ .root = b.path("runtime-c"), .files = cFiles(b, "runtime-c", &.{ "device", "plan" }), .flags = &c_flags });
    // #embed is C23.
    module.addCSourceFile(.{ .file = table, .flags = &(.{"-std=c23"} ++ c_flags[1..].*) });
    module.addIncludePath(b.path("runtime-c"));
    watchHeaders(b, module);
    module.addIncludePath(vulkanHeaders(b));
    return module;
}

fn tableObject(b: *Build, target: Build.ResolvedTarget, table: LazyPath) *Build.Step.Compile {
    const module = b.createModule(.{ .target = target, .optimize = .ReleaseFast, .link_libc = true, .pic = true });
    module.addCSourceFile(.{ .file = table, .flags = &(.{"-std=c23"} ++ c_flags[1..].*) });
    module.addIncludePath(b.path("runtime-c"));
    watchHeaders(b, module);
    return b.addObject(.{ .name = "kernel_table", .root_module = module });
}

/// The Vulkan headers alone: with the folder they lie in, the system's C headers would come before those of the target.
fn vulkanHeaders(b: *Build) LazyPath {
    const sdk = if (b.graph.environ_map.get("VULKAN_SDK")) |root| b.pathJoin(&.{ root, "include" }) else "/usr/include";
    for ([_][]const u8{ sdk, "/usr/include", "/usr/local/include", "/opt/homebrew/include" }) |root| {
        if (!exists(b, b.pathJoin(&.{ root, "vulkan", "vulkan.h" }))) continue;
        const copy = b.addWriteFiles();
        for ([_][]const u8{ "vulkan", "vk_video" }) |folder| {
            _ = copy.addCopyDirectory(.{ .cwd_relative = b.pathJoin(&.{ root, folder }) }, folder, .{ .include_extensions = &.{".h"} });
        }
        return copy.getDirectory();
    }
    const missing = b.addWriteFiles();
    missing.step.dependOn(&b.addFail("the Vulkan headers were not found: install libvulkan-dev, run `deno task setup`, or set VULKAN_SDK").step);
    return missing.getDirectory();
}

/// Which of the two WASM modules is built. `alone` has its own memory with 32-bit addresses, which every engine
/// supports. `threads` shares memory with 64-bit addresses between its instances.
const Threads = enum { alone, threads };

/// A reactor without imports but memory: exported functions.
fn wasmModule(b: *Build, table: LazyPath, threads: Threads) LazyPath {
    const Feature = std.Target.wasm.Feature;
    const target = b.resolveTargetQuery(.{
        .cpu_arch = switch (threads) {
            .alone => .wasm32,
            .threads => .wasm64,
        },
        .os_tag = .freestanding,
        .cpu_features_add = std.Target.wasm.featureSet(switch (threads) {
            .alone => &[_]Feature{ .simd128, .relaxed_simd, .bulk_memory },
            .threads => &[_]Feature{ .simd128, .relaxed_simd, .bulk_memory, .atomics },
        }),
    });
    const module = b.createModule(.{ .root_source_file = b.path("runtime-c/wasm/matmul/double_math.zig"), .target = target, .optimize = .ReleaseFast, .strip = true, .single_threaded = threads == .alone });
    module.addCSourceFiles(.{ .root = b.path("runtime-c/wasm"), .files = cFiles(b, "runtime-c/wasm", &.{ "attention", "experts", "indexing", "linalg", "matmul", "quantized" }), .flags = &c_flags });
    module.addCSourceFile(.{ .file = table, .flags = &c_flags });
    module.addIncludePath(b.path("runtime-c/wasm"));
    watchHeaders(b, module);
    const kernels_wasm = b.addExecutable(.{ .name = "kernels", .root_module = module });
    kernels_wasm.entry = .disabled;
    kernels_wasm.export_memory = threads == .alone;
    kernels_wasm.import_memory = threads == .threads;
    kernels_wasm.shared_memory = threads == .threads;
    kernels_wasm.max_memory = switch (threads) {
        .alone => 4 << 30,
        .threads => 16 << 30,
    };
    kernels_wasm.stack_size = 1 << 20;
    return kernels_wasm.getEmittedBin();
}

/// Compiles the C files of a module again where a header changed. Zig 0.16 sees that for files that the last build compiled only.
fn watchHeaders(b: *Build, module: *Build.Module) void {
    const io = b.graph.io;
    var digest: u64 = 0;
    for ([_][]const u8{ "runtime-c", "shaders" }) |folder| {
        var dir = std.Io.Dir.cwd().openDir(io, b.pathFromRoot(folder), .{ .iterate = true }) catch |err|
            std.debug.panic("{s}: {t}", .{ folder, err });
        defer dir.close(io);
        var files = dir.walk(b.allocator) catch @panic("OOM");
        while (files.next(io) catch |err| std.debug.panic("{s}: {t}", .{ folder, err })) |file| {
            if (!std.mem.endsWith(u8, file.basename, ".h")) continue;
            const text = file.dir.readFileAlloc(io, file.basename, b.allocator, .unlimited) catch |err|
                std.debug.panic("{s}/{s}: {t}", .{ folder, file.path, err });
            digest ^= std.hash.Wyhash.hash(std.hash.Wyhash.hash(0, file.path), text); // in any order
        }
    }
    module.addCMacro("HEADERS_DIGEST", b.fmt("{x}", .{digest}));
}

/// The C files of a folder and of some folders in it, sorted by name so that the build does not depend on directory order.
fn cFiles(b: *Build, root: []const u8, rooms: []const []const u8) []const []const u8 {
    var files: std.ArrayList([]const u8) = .empty;
    addCFiles(b, root, "", &files);
    for (rooms) |room| addCFiles(b, root, room, &files);
    std.mem.sort([]const u8, files.items, {}, struct {
        fn less(_: void, x: []const u8, y: []const u8) bool {
            return std.mem.lessThan(u8, std.fs.path.basename(x), std.fs.path.basename(y));
        }
    }.less);
    return files.items;
}

fn addCFiles(b: *Build, root: []const u8, room: []const u8, files: *std.ArrayList([]const u8)) void {
    const io = b.graph.io;
    const folder = b.pathJoin(&.{ root, room });
    var dir = std.Io.Dir.cwd().openDir(io, b.pathFromRoot(folder), .{ .iterate = true }) catch |err|
        std.debug.panic("{s}: {t}", .{ folder, err });
    defer dir.close(io);
    var entries = dir.iterate();
    while (entries.next(io) catch null) |entry| {
        if (std.mem.endsWith(u8, entry.name, ".c")) files.append(b.allocator, b.pathJoin(&.{ room, entry.name })) catch @panic("OOM");
    }
}
