/**
 * Where the SPIR-V of kernels comes from: the system's compiler, its cache on disk, the program itself. Also what is
 * refused before a driver sees it.
 */

import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { liveObjects } from "../../ffi/vulkan.ts";
import { closeDevices, getBackend } from "../../src/backend/devices.ts";
import { testDevices } from "../support/devices/devices.ts";
import { type Need, needing } from "../support/needs.ts";
import { runCode } from "../support/processes/programs.ts";

const [device] = testDevices().filter((name) => name.startsWith("vulkan"));
/** Name and `ignore` of a test of kernels in GLSL on a Vulkan device. */
async function kernelTest(name: string, ...more: readonly Need[]): Promise<{ readonly name: string; ignore: boolean }> {
  const test = await needing(name, "glslc", ...more);
  return { ...test, ignore: test.ignore || device === undefined };
}

/** Runs a kernel that doubles, and prints what comes of it, or code and message of the error. */
const DOUBLE = `
  import * as mx from "./mod.ts";
  const kernel = mx.fast.vulkanKernel({
    name: "double",
    inputNames: ["a"],
    outputNames: ["b"],
    source: "uint i = thread_position_in_grid.x; b[i] = 2 * a[i];",
  });
  try {
    const [b] = kernel({
      inputs: [mx.array([1, 2])],
      grid: [2, 1, 1],
      threadgroup: [2, 1, 1],
      outputShapes: [[2]],
      outputDtypes: [mx.float32],
    });
    console.log(b.tolist().join());
  } catch (error) {
    console.log(error.name, error.code, error.message);
  }
`;

Deno.test({
  ...await kernelTest(
    "a compiled kernel is kept on disk: the next program needs neither the compiler nor its permission",
  ),
  async fn() {
    const folder = await Deno.makeTempDir();
    const own = { VKMX_DEVICE: device, VKMX_CACHE: folder };
    const without = ["--no-prompt", "--allow-env", "--allow-ffi", "--allow-read", "--allow-write"];
    try {
      const denied = await runCode(DOUBLE, own, without);
      assertStringIncludes(denied.stdout, "RuntimeError unavailable vulkanKernel(): Deno may not start glslc");
      assertStringIncludes(denied.stdout, "--allow-run=glslc");
      const missing = await runCode(DOUBLE, { ...own, GLSLC: `${folder}/none` });
      assertStringIncludes(
        missing.stdout,
        `RuntimeError missing vulkanKernel(): ${folder}/none, which compiles GLSL, was not found`,
      );
      assertStringIncludes(missing.stdout, "option spirv");
      const compiled = await runCode(DOUBLE, own, [...without, "--allow-run=glslc"]);
      assertEquals([compiled.code, compiled.stdout], [0, "2,4\n"], compiled.stderr);
      const files = Array.from(Deno.readDirSync(`${folder}/shaders`), ({ name }) => name);
      assertEquals(files.length, 1, files.join()); // and nothing that was on the way
      const failed = await runCode(DOUBLE, { ...own, VKMX_FAULT: "vkCreateShaderModule:-2" });
      assertStringIncludes(failed.stdout, "RuntimeError out-of-memory vkrt_kernel_new(): ");
      const kept = await runCode(DOUBLE, { ...own, GLSLC: `${folder}/none` }, without);
      assertEquals([kept.code, kept.stdout], [0, "2,4\n"], kept.stderr);
      // A damaged file counts as none.
      const path = `${folder}/shaders/${files[0]}`;
      const bytes = Deno.readFileSync(path);
      bytes[bytes.length - 5] ^= 1;
      for (const damaged of [bytes, bytes.slice(0, 40), new Uint8Array(0)]) {
        Deno.writeFileSync(path, damaged);
        assertStringIncludes((await runCode(DOUBLE, own, without)).stdout, "may not start");
      }
      assertEquals((await runCode(DOUBLE, own)).stdout, "2,4\n");
      assertEquals((await runCode(DOUBLE, own, without)).stdout, "2,4\n");
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});

// ---- SPIR-V -----------------------------------------------------------------------------------------------------------

/** docs/custom-kernels.md's interface, written by hand. */
const BY_HAND = `#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float64 : enable
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int v[]; };
layout(push_constant, std430) uniform Push { uint64_t a, out_, metadata; uint x, y, z; } pc;
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= pc.x) return;
  Ints metadata = Ints(pc.metadata); // ndim, shape, strides
  Floats(pc.out_).v[i] = Floats(pc.a).v[i * metadata.v[2]] + metadata.v[0] + 10 * metadata.v[1];
}`;

/** SPIR-V by the compiler of the machine. */
function compiledBy(text: string): Uint8Array<ArrayBuffer> {
  const path = Deno.makeTempFileSync({ suffix: ".comp" });
  try {
    Deno.writeTextFileSync(path, text);
    const args = ["--target-env=vulkan1.3", "-o", "-", path];
    const { success, stdout, stderr } = new Deno.Command("glslc", { args }).outputSync();
    assert(success, new TextDecoder().decode(stderr));
    return stdout as Uint8Array<ArrayBuffer>;
  } finally {
    Deno.removeSync(path);
  }
}

type Spirv = NonNullable<mx.fast.VulkanKernelOptions["spirv"]>;

function run(spirv: Spirv, x: mx.Tensor = mx.array([1, 2, 3]), more: Partial<mx.fast.VulkanKernelCall> = {}): unknown {
  const kernel = mx.fast.vulkanKernel({
    name: "by_hand",
    inputNames: ["a"],
    outputNames: ["out"],
    spirv,
    ensureRowContiguous: false,
  });
  const [out] = kernel({
    inputs: [x],
    grid: [x.size, 1, 1],
    threadgroup: [64, 1, 1],
    outputShapes: [x.shape],
    outputDtypes: [mx.float32],
    ...more,
  });
  return out.tolist();
}

Deno.test({
  ...await kernelTest("a program's own SPIR-V runs, chosen by dtypes and template"),
  fn() {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const spirv = compiledBy(BY_HAND);
      assertEquals(run(spirv), [32, 33, 34]); // 1 axis of 3
      const every = mx.arange(6, mx.float32).index(mx.Slice(null, null, 2));
      assertEquals(run(spirv, every), [31, 33, 35]); // of stride 2
      const seen: unknown[] = [];
      const choose = (variant: mx.fast.KernelVariant): Uint8Array => (seen.push(variant), spirv);
      assertEquals(run(choose, mx.array([5]), { template: { T: mx.float16, n: 3 } }), [16]);
      assertEquals(seen, [{
        inputs: ["float32"],
        outputs: ["float32"],
        template: { T: "float16", n: 3 },
        threadgroup: [64, 1, 1],
      }]);
      // Its own size of workgroups, where the call says the same.
      const fixed = compiledBy(BY_HAND.replace(/local_size_x_id.*2\)/, "local_size_x = 64)"));
      assertEquals(run(fixed), [32, 33, 34]);
      assertThrows(
        () => run(fixed, undefined, { threadgroup: [32, 1, 1] }),
        mx.KernelError,
        "its workgroups are 64 x 1 x 1",
      );
    });
  },
});

Deno.test({
  ...await kernelTest("what is no SPIR-V, or wants what the device lacks, is refused before the driver sees it"),
  fn() {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const spirv = compiledBy(BY_HAND);
      const changed = (at: number, value: number): Uint8Array => {
        const words = new Uint32Array(spirv.slice().buffer);
        words[at] = value;
        return new Uint8Array(words.buffer);
      };
      const refused = (module: Spirv, said: string): void => {
        const error = assertThrows(() => run(module), mx.ArrayError);
        assertStringIncludes(error.message, said);
        assertStringIncludes(error.message, 'vulkanKernel "by_hand"');
      };
      refused(new Uint8Array(0), "expected SPIR-V");
      refused(spirv.slice(0, 20), "expected SPIR-V");
      refused(spirv.slice(0, -1), "expected SPIR-V");
      refused(spirv.slice(0, -4), "cut off: a function");
      refused(spirv.slice(0, -24), "cut off");
      refused(changed(0, 0x03022307), "begins with");
      refused(changed(1, 0x20000), "header");
      refused(changed(3, 0), "header");
      refused(changed(3, 2 ** 31), "header");
      refused(changed(5, 0), "cut off"); // an instruction of no words
      refused(changed(6, 10), "capability 10"); // Float64, which no device is opened with
      refused((() => "module") as unknown as Spirv, "return a Uint8Array");
      refused(changed(new Uint32Array(spirv.slice().buffer).indexOf(0x6e69616d), 0x6e69616e), "entry point"); // "main"
      const bound = BY_HAND.replace("void main", "layout(binding = 0) buffer B { float v[]; } b;\nvoid main")
        .replace("if (i", "b.v[0] = 1; if (i");
      refused(compiledBy(bound), "descriptors");
    });
  },
});

Deno.test({
  ...await kernelTest("spirv-val is asked where it is there", "spirv-val"),
  fn() {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const words = new Uint32Array(compiledBy(BY_HAND).slice().buffer);
      // The last OpReturn (253) becomes OpUnreachable's neighbour: OpKill (252), which compute shaders must not have.
      words[words.findLastIndex((word) => word === 0x100fd)] = 0x100fc;
      assertThrows(() => run(new Uint8Array(words.buffer)), mx.KernelError, "cannot run");
    });
  },
});

// ---- the device ---------------------------------------------------------------------------------------------------------

Deno.test({
  ...await kernelTest("a kernel is made once on a device and goes with it; one that never runs is never made"),
  fn() {
    closeDevices();
    mx.setDefaultDevice(device);
    const kernel = mx.fast.vulkanKernel({
      name: "count",
      inputNames: ["a"],
      outputNames: ["b"],
      source: "uint i = thread_position_in_grid.x; b[i] = T(a[i]) + n;",
    });
    const call = (size: number, n: number, threads: number): mx.AnyTensor => {
      const inputs = [mx.ones([size])];
      const sizes = {
        grid: [size, 1, 1],
        threadgroup: [threads, 1, 1],
        outputShapes: [[size]],
        outputDtypes: [mx.float32],
      };
      return kernel({ inputs, template: { T: mx.float32, n }, ...sizes })[0];
    };
    mx.tidy(() => {
      call(4, 1, 4);
      getBackend(device);
      assertEquals(liveObjects().kernels, 0);
      for (const size of [4, 5, 6]) for (const threads of [1, 2, 4]) call(size, 1, threads).tolist();
      assertEquals(liveObjects().kernels, 1); // for all sizes and threadgroups
      assertEquals(call(2, 7, 2).tolist(), [8, 8]);
      assertEquals(liveObjects().kernels, 2);
    });
    closeDevices();
    assertEquals(liveObjects(), { devices: 0, buffers: 0, plans: 0, kernels: 0 });
  },
});
