/**
 * The matches in a layer with experts of a prompt, without a device: what is found around the experts, and what of them is taken. A layer
 * that differs in one thing has less taken, or none with the reason.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { chooseExperts, type ExpertMatrices } from "../../../src/array/quantized/experts.ts";
import { expertMixture } from "../../../src/array/quantized/sorted_experts.ts";
import { nodeOf } from "../../../src/array/tensor/tensor.ts";
import { findPrompt } from "../../../src/schedule/decoder/match/prefill.ts";
import { viewOf } from "../../support/models/graph_view.ts";

const [ROWS, HIDDEN, SIZE, EXPERTS, CHOSEN] = [20, 128, 64, 8, 2];

/** Differences of a layer from Mixtral's. */
interface Variant {
  /** An expert of all rows: whole, without a gate, or times the sigmoid of scores: one a row, one a feature, or one. */
  readonly shared?: "whole" | "scored" | "by features" | "by one number" | "ungated";
  readonly routerBias?: boolean;
  readonly outputBias?: boolean;
  /** Whether the output projection is not quantized. */
  readonly dense?: boolean;
  /** A factor of what the experts add. */
  readonly scale?: number;
  readonly postNorm?: boolean;
  /** Whether the residual is a product, which another norm reads. */
  readonly projected?: boolean;
  /** Whether a mask multiplies the normalised rows too. */
  readonly masked?: boolean;
  /** Nodes that are asked for beside the result. */
  readonly asked?: readonly (keyof Parts)[];
}

interface Parts {
  readonly h: mx.Tensor;
  readonly normed: mx.Tensor;
  readonly scores: mx.Tensor;
  readonly mixture: mx.Tensor;
  readonly shared: mx.Tensor;
  readonly result: mx.Tensor;
  readonly x: mx.Tensor;
  readonly others: readonly mx.Tensor[];
}

function layer(v: Variant): Parts {
  const weight = (...shape: number[]): mx.Tensor => mx.zeros(shape, mx.bfloat16);
  const rms = (x: mx.Tensor): mx.Tensor => mx.fast.rmsNorm(x, weight(x.shape[x.ndim - 1]), 1e-6).astype(x.dtype);
  const linear = (x: mx.Tensor, outputs: number, bias = false): mx.Tensor => {
    const inputs = x.shape[x.ndim - 1];
    const codes = mx.zeros([outputs, inputs / 8], mx.uint32);
    const [scales, offsets] = [weight(outputs, inputs / 64), weight(outputs, inputs / 64)];
    const product = mx.quantizedMatmul(x, codes, scales, offsets, true, 64, 4).astype(x.dtype);
    return bias ? mx.add(product, weight(outputs)) : product;
  };
  const stack = (outputs: number, inputs: number): ExpertMatrices => ({
    weight: mx.zeros([EXPERTS, outputs, inputs / 8], mx.uint32),
    scales: weight(EXPERTS, outputs, inputs / 64),
    biases: weight(EXPERTS, outputs, inputs / 64),
    format: { mode: "affine", bits: 4, groupSize: 64 },
  });
  const given = mx.zeros([1, ROWS, HIDDEN], mx.bfloat16);
  const x = v.projected ? linear(given, HIDDEN) : given;
  const others = v.projected ? [rms(x)] : [];
  const mixed = mx.zeros([1, ROWS, SIZE], mx.bfloat16);
  const output = v.dense ? mx.matmul(mixed, weight(HIDDEN, SIZE).T) : linear(mixed, HIDDEN, v.outputBias);
  const h = mx.add(x, output);
  const normed = rms(h);
  if (v.masked) others.push(mx.multiply(normed, mx.zeros([1, ROWS, 1], mx.bfloat16)));
  const rows = normed.reshape(ROWS, HIDDEN);
  const scores = linear(rows, EXPERTS, v.routerBias);
  const choice = chooseExperts(scores, {
    chosen: CHOSEN,
    among: "chosen",
    normalized: false,
    sumEps: 0,
    factor: 1,
    groups: 1,
    closedGroups: 0,
  });
  const matrices = { gate: stack(SIZE, HIDDEN), up: stack(SIZE, HIDDEN), down: stack(HIDDEN, SIZE) };
  const mixture = expertMixture(rows, choice, matrices, "silu");
  let sum: mx.Tensor = mixture.reshape(1, ROWS, HIDDEN);
  const gate = mx.nn.silu(linear(normed, SIZE));
  const shared = linear(v.shared === "ungated" ? gate : mx.multiply(gate, linear(normed, SIZE)), HIDDEN);
  const scoresOfShared: Readonly<Record<string, () => mx.Tensor>> = {
    scored: () => linear(normed, 1),
    "by features": () => linear(normed, HIDDEN),
    "by one number": () => weight(1),
  };
  const score = scoresOfShared[v.shared ?? ""]?.();
  if (v.shared) sum = mx.add(sum, score ? mx.multiply(mx.sigmoid(score), shared) : shared);
  if (v.postNorm) sum = rms(sum);
  if (v.scale) sum = mx.multiply(sum, v.scale);
  return { h, normed, scores, mixture, shared, result: mx.add(h, sum), x, others };
}

interface Found {
  /** What of the layer is taken, and how the rows are given. */
  readonly taken: readonly string[];
  readonly reasons: readonly string[];
}

function foundIn(v: Variant): Found {
  return mx.tidy(() => {
    const parts = layer(v);
    const nodes = [parts.result, ...parts.others, ...(v.asked ?? []).map((name) => parts[name] as mx.Tensor)].map(
      nodeOf,
    );
    const { epilogues, reasons } = findPrompt(viewOf(nodes), new Set(nodes));
    const taken = epilogues.flatMap(({ x, o, oBias, out, feedForward, scales }) => {
      assertEquals([x, out], [nodeOf(parts.x), nodeOf(parts.result)]);
      if (!("sum" in feedForward)) return ["a gated part"];
      const { router, isMixture, shared, dtype } = feedForward;
      assertEquals(scales, [1, v.scale ?? 1]);
      return [
        ...(o ? [`o of ${o.k}${oBias ? ", biased" : ""}`] : []),
        ...(router ? [`router${router.bias ? ", biased" : ""}`] : []),
        ...(isMixture ? ["experts"] : []),
        ...(shared ? [shared.score ? "shared, scored" : "shared"] : []),
        dtype.name,
      ];
    });
    return { taken, reasons: [...reasons] };
  });
}

const O = `o of ${SIZE}`;
const ALL = [O, "router", "experts", "float16"];
const CASES: Readonly<Record<string, readonly [v: Variant, taken: readonly string[], reasons?: readonly string[]]>> = {
  "all is taken": [{}, ALL],
  "what is added has a factor": [{ scale: 0.5 }, ALL],
  "the residual is a product": [{ projected: true }, ALL],
  "there is an expert of all rows": [{ shared: "whole" }, [O, "router", "experts", "shared", "float16"]],
  "there is one by a score": [{ shared: "scored" }, [O, "router", "experts", "shared, scored", "float16"]],
  "there is one by a score for each feature": [{ shared: "by features" }, [O, "router", "float16"]],
  "there is one by a score for all rows": [{ shared: "by one number" }, [O, "router", "float16"]],
  "the one of all rows has no gate": [{ shared: "ungated" }, [O, "router", "float16"]],
  "the one of all rows is asked for": [{ shared: "scored", asked: ["shared"] }, [O, "router", "float16"]],
  "the router has a bias": [{ routerBias: true }, [O, "router, biased", "experts", "float16"]],
  "the output projection has a bias": [{ outputBias: true }, [`${O}, biased`, "router", "experts", "float16"]],
  "the output projection is not quantized": [{ dense: true }, ["router", "experts", "float16"]],
  "scores are asked for": [{ asked: ["scores"] }, [O, "experts", "float16"]],
  "the sum of experts is asked for": [{ asked: ["mixture"] }, [O, "router", "float16"]],
  "something else reads the rows": [{ masked: true }, [O, "router", "experts", "bfloat16"]],
  "the rows are asked for": [{ asked: ["normed"] }, [O, "router", "experts", "bfloat16"]],
  "the residual before experts is asked for": [{ asked: ["h"] }, [], ["the result of elementwise is asked for"]],
  "experts are normalised before they are added": [{ postNorm: true }, []],
};

for (const [name, [v, taken, reasons = []]] of Object.entries(CASES)) {
  Deno.test(`in a layer with experts ${name}`, () => {
    assertEquals(foundIn(v), { taken, reasons });
  });
}
