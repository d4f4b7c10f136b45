/**
 * The rate of a GPU's matrix units with operands in registers: the floor of prompts.
 *
 * @module
 */

import type { Backend } from "../../src/backend/backend.ts";
import { float16, float32 } from "../../src/graph/dtype.ts";
import { matrixMap } from "../../src/schedule/ops/matmul/coopmat.ts";
import { Bench, HALVES } from "./plan.ts";

const [WORKGROUPS, THREADS, SUBGROUP, ROUNDS] = [2048, 128, 32, 1024];
/** Products of a subgroup in a round, and operations of one. */
const [PRODUCTS, OPERATIONS] = [8, 2 * 16 ** 3];

/** The module of matrix_rate.comp, compressed as "deflate-raw", in base64. */
const MODULE =
  "dVbLS5RRFL/3m2kc08pxHk7hjI/RGavBQjLCcCHiA0x6DNRSpAQfmKWSmpuCaOHKTX9BG83yVVCRS/dF6yKiWiRt04yUzvnu7+bpwxm43nt+v/O+" +
  "57vlc1IFKqBVkTqk4o5yfyHlKI29EHsz9sshs3+OmP0L9odlSh1UQZW7dLWnq/NKz/WRkVt9o73jA3f6eoZ7x0cHJhXFCLh+Oy7kLtSPjd+oP9N4" +
  "muMdVj71lfz46HyEIh6g3U9ruHfgJvO1tJ7QWqS1QqtLB1w+TauAVpAW59lBKMvalOHKQcgaciHOjiv7VBLnToqahF0Ku8U0sKDAHGAlAvMBiwjM" +
  "DyyO+BW0B0T8ShG/0hOf9auh74d+Suin9tHnPhXROgZ5EXIa8grkOlph8sS+qsivD36jpMPxbC4NkG1frRz0yLavJyEXwz5CXrkfMYoQQ7+sThl6" +
  "ZuU4+P5QgTrq2hidOBb7zJBFOe3fIuacwDlJGXK/mUugZ3YlSK8C/pLoeYVbo/+fr0rkWIXa2aba7Y2x4R5Xw8bGTEGuQf0c/zzkWmDczzR82v6k" +
  "3TrMj+3roFsuepFVxoD5esSLCfsmT79bcX9WbgPPvWzfp5dtQrdbmQFj3T7ULHVbocv4IPLOksy6Q8BsXhO4U857EnWZu/arOZwtP48c59C3eXzn" +
  "GvwCzgHwC3gDtJBXhP5LxEtAfoO+VYla/+Djt/KONglZeZdleoDO0h8H351Czr8I4bephf7ynR3HPfNdNmOWTgBvIW98b6eAZTC/A6GgO9sN4DLo" +
  "sYPZt3Yf9J5dVth91IbLZ/dd2HGt1m5DGy6f3aaw2xF2W9pw+ewuivq6kSfPWw5cPru3It6u3rN7pw3ntdum023cAe8/lZnVMsfMIN/LDNmNCi4m" +
  "uCkPFxVcv4eLCO6ahwsLrt3DlQqu0cOFBDer/udKBFcj7Hge1zE3zD2CHc8ff1tTmL8JzB/r3wW+TDr87k7DB+ObpDMGH/z7TfI05DH0ls9DoYCb" +
  "1yzmNGfzB845NuCuSgTONfN85mwvgLcDZ/2wwLm3G9CPCLwfOOtHBc53uAX9mMBngLM+z8M9qj2Afq3jrZTzw7XeJx22fYzauA6LvQdeKrBPwMMC" +
  "+wE8IrBt4FGB0X+vXDwmsLA2OOfL98lv2VO8f8XiPp8Bt/IS3sAHqHEZOktCZxXvou3Dc+itCrsXwLOYJ347X2GemuCL39HXwPm75fd0DVgGPgbp" +
  "34w11OP9ZnfoZT5H6y8=";

/** TFLOP/s of float16 products with float32 sums; undefined if the device has none that vkmx uses. */
export async function matrixRate(backend: Backend): Promise<number | undefined> {
  if (!matrixMap(backend).weights) return undefined;
  const spirv = await matrixRateModule();
  using bench = new Bench(backend);
  const subgroups = THREADS / SUBGROUP;
  const x = bench.array([6 * 256], float16, HALVES);
  const sums = bench.array([WORKGROUPS * subgroups * 256], float32, 0);
  const id = backend.kernel({ name: "matrix_rate", spirv, buffers: 2, writes: 2, optional: 0 });
  bench.l.emitShader("matrix_rate", [x, sums], {
    id,
    threadgroup: [THREADS, 1, 1],
    push: [WORKGROUPS * THREADS, ROUNDS, 1],
    workgroups: [WORKGROUPS, 1, 1],
  });
  const [us] = bench.time(1);
  return WORKGROUPS * subgroups * ROUNDS * PRODUCTS * OPERATIONS / us / 1e6;
}

/** The words of the module. */
export async function matrixRateModule(): Promise<Uint32Array<ArrayBuffer>> {
  const bytes = Uint8Array.fromBase64(MODULE);
  const whole = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint32Array(await new Response(whole).arrayBuffer());
}
