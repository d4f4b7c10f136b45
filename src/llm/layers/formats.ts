/**
 * The formats of a model's matrices, which fused steps are made for.
 *
 * @module
 */

import { Tensor } from "../../array/mod.ts";
import { isHalf } from "../../graph/dtype.ts";
import { DENSE, type MatrixFormat, smallFloatMode } from "../../graph/quantization.ts";
import { Embedding, Linear, type Module, RMSNorm, RoPE } from "../../nn/mod.ts";
import { QuantizedMatrix } from "../../nn/quantized.ts";
import { CausalConv } from "./causal_conv.ts";
import { DeltaNet } from "./delta_net.ts";
import { SwitchLinear } from "./switch_linear.ts";

/** Whether a module has a dense matrix, or a stack of them. */
function isDense(part: unknown): part is Linear | Embedding | SwitchLinear {
  return part instanceof Linear || part instanceof Embedding || part instanceof SwitchLinear;
}

/** Arrays that the config tells of. */
const TOLD = ["sinks"];

/**
 * The formats that the matrices of a model have: codes, or dense ones of 16 bits. Undefined if some have others, or if modules other than
 * norms, positions and delta nets have further arrays.
 */
export function formatsOf(model: Module): readonly MatrixFormat[] | undefined {
  const formats: MatrixFormat[] = [];
  let others = false;
  const visit = (part: unknown): void => {
    if (part instanceof QuantizedMatrix) formats.push(formatOf(part));
    else if (isDense(part) && isHalf(part.weight.dtype)) formats.push(DENSE);
    else if (part instanceof Tensor) others = true;
    else if (part instanceof CausalConv) return;
    else if (part instanceof DeltaNet) Object.values(part).filter((own) => !(own instanceof Tensor)).forEach(visit);
    else if (typeof part === "object" && part !== null && !(part instanceof RMSNorm || part instanceof RoPE)) {
      Object.entries(part).forEach(([name, value]) => TOLD.includes(name) || visit(value));
    }
  };
  visit(model);
  const different = formats.filter((a, i) =>
    formats.findIndex((b) => b.bits === a.bits && b.groupSize === a.groupSize && b.mode === a.mode) === i
  );
  return others ? undefined : different;
}

function formatOf({ bits, groupSize, mode }: QuantizedMatrix): MatrixFormat {
  const small = smallFloatMode(mode);
  return { bits, groupSize, ...(small && { mode: small }) };
}
