/**
 * Random programs: draws them, runs them on a device and by the float64 interpreter, compares every value, and finds the smallest
 * program that still fails.
 */

import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import type { TypeName } from "../../ops/cases/case.ts";
import { Draw, isFloat } from "../../ops/cases/draw.ts";
import type { Guards } from "../devices/guards.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { numbersOf } from "./compare.ts";
import { size } from "./oracle.ts";
import { type Parameters, type Value, valueOf } from "./program_ops.ts";
import { PROGRAM_OPS } from "./program_ops_more.ts";

/** An array that a program begins with. */
interface Leaf {
  readonly id: number;
  readonly shape: readonly number[];
  readonly dtype: TypeName;
  readonly data: readonly number[];
}

/** One op: values are named by number, its own is `id`. */
interface Step {
  readonly id: number;
  readonly op: string;
  readonly args: readonly number[];
  readonly p: Parameters;
  readonly dtype: TypeName;
  /** Evaluated at once, where the program is not compiled. */
  readonly evaluate: boolean;
}

/** A program and how it runs. */
export interface Program {
  readonly leaves: readonly Leaf[];
  readonly steps: readonly Step[];
  readonly fuse: boolean;
  readonly compile: boolean;
}

/** Largest number that a program may reach. */
const MOST = 50;

function leafValue({ id, shape, dtype, data }: Leaf): Value {
  const numbers = Float64Array.from(data);
  const rough = isFloat(dtype) && dtype !== "float32";
  return { id, shape, dtype, data: numbers, exact: true, rough, scale: Math.max(1, ...data.map(Math.abs)) };
}

/** The program of a seed. */
export function drawProgram(seed: number): Program {
  const d = new Draw(seed);
  const sizes = [d.int(1, 7), d.int(1, 6), d.pick([3, 4, 33])];
  const leaves = Array.from({ length: d.int(2, 5) }, (_, id): Leaf => {
    const dtype = id === 0
      ? "float32"
      : d.pick(["float32", "float32", "float32", "int32", "bool", "float16", "bfloat16"] as const);
    const rank = d.int(0, 3);
    const shape = Array.from({ length: rank }, () => d.chance(0.15) ? 1 : d.pick(sizes));
    const range = dtype === "int32" ? [-1, 2] as const : dtype === "bool" ? [0, 1] as const : [-2, 2] as const;
    return { id, shape, dtype, data: d.values(size(shape), dtype, range) };
  });
  const values = leaves.map(leafValue);
  const steps: Step[] = [];
  const names = Object.keys(PROGRAM_OPS);
  for (let tries = 0, count = d.int(4, 24); steps.length < count && tries < 200; tries++) {
    const name = d.pick(names);
    const op = PROGRAM_OPS[name];
    const chosen = op.draw(d, values);
    if (!chosen) continue;
    const dtype = chosen.dtype ?? chosen.args[0].dtype;
    const id = leaves.length + steps.length;
    const value = valueOf(op, id, chosen.args, chosen.p, dtype);
    if (value.data.length > 6000 || !value.data.every((v) => Math.abs(v) <= MOST)) continue;
    if (op.inPlace) values[values.findIndex((v) => v.id === chosen.args[0].id)] = { ...value, id: chosen.args[0].id };
    else values.push(value);
    steps.push({ id, op: name, args: chosen.args.map((a) => a.id), p: chosen.p, dtype, evaluate: d.chance(0.2) });
  }
  return { leaves, steps, fuse: d.chance(0.7), compile: d.chance(0.3) };
}

/** Every value of a program, by number. Updates in place have none: they change what their first argument's stands for. */
export function interpret(program: Program): Map<number, Value> {
  const values = new Map(program.leaves.map((leaf) => [leaf.id, leafValue(leaf)]));
  for (const { id, op: name, args, p, dtype } of program.steps) {
    const op = PROGRAM_OPS[name];
    const value = valueOf(op, id, args.map((a) => values.get(a)!), p, dtype);
    values.set(op.inPlace ? args[0] : id, value);
  }
  return values;
}

/** The steps of a program over its leaves; every value in the order of {@link interpret}. */
function build(program: Program, leaves: readonly mx.Tensor[], evaluate: boolean): mx.Tensor[] {
  const tensors = new Map(program.leaves.map((leaf, i) => [leaf.id, leaves[i]]));
  for (const step of program.steps) {
    const result = PROGRAM_OPS[step.op].run(mx, step.args.map((a) => tensors.get(a)!), step.p);
    if (!PROGRAM_OPS[step.op].inPlace) tensors.set(step.id, result);
    if (evaluate && step.evaluate) mx.eval(result);
  }
  return [...tensors.values()];
}

/** The results of a program on a device. */
function execute(
  program: Program,
): { dtype: string; shape: readonly number[]; data: ArrayLike<number> }[] {
  return mx.tidy(() => {
    using _options = withOptions({ fuse: program.fuse });
    const leaves = program.leaves.map(({ data, dtype, shape }) =>
      mx.reshape(mx.array([...data], mx[dtype]), [...shape])
    );
    let results: mx.Tensor[];
    if (program.compile) {
      using fn = mx.compile((...x: mx.Tensor[]) => build(program, x.map((t) => mx.reshape(t, t.shape)), false));
      fn(...leaves);
      results = fn(...leaves);
    } else results = build(program, leaves, true);
    return results.map((t) => ({
      dtype: t.dtype.name,
      shape: t.shape,
      data: numbersOf(t),
    }));
  });
}

/** The fault of a program on the default device, or undefined. */
export function failureOf(program: Program, guards?: Guards): string | undefined {
  const expected = interpret(program);
  const backend = getBackend();
  const before = backend.liveObjects();
  let results: ReturnType<typeof execute>;
  try {
    results = execute(program);
  } catch (error) {
    return `throws ${(error as Error).message}`;
  } finally {
    guards?.check();
  }
  for (const [name, value] of expected) {
    const { dtype, shape, data } = results.shift()!;
    if (`${shape}` !== `${value.shape}`) return `value ${name} has shape (${shape}) instead of (${value.shape})`;
    if (dtype !== value.dtype) return `value ${name} is ${dtype} instead of ${value.dtype}`;
    const allowed = value.exact ? 0 : value.scale * (value.rough ? 0.04 : 2e-4);
    for (let i = 0; i < data.length; i++) {
      if (Math.abs(data[i] - value.data[i]) <= allowed) continue;
      return `value ${name}[${i}] is ${data[i]}, the interpreter has ${value.data[i]}`;
    }
  }
  const { buffers, plans } = backend.liveObjects();
  if (buffers > before.buffers || plans > before.plans) return `${buffers - before.buffers} buffers stay alive`;
  return undefined;
}

/** The program without some of its steps, the steps that depend on them, and leaves that no step reads. */
function without(program: Program, gone: ReadonlySet<number>): Program {
  const left = new Set(gone);
  const steps = program.steps.filter((step) => {
    if (!step.args.some((a) => left.has(a)) && !left.has(step.id)) return true;
    left.add(step.id);
    return false;
  });
  return { ...program, steps, leaves: program.leaves.filter((leaf) => !left.has(leaf.id)) };
}

/** The smallest program found that still fails. */
export function minimised(program: Program, fails: (program: Program) => boolean): Program {
  let best = program;
  for (let again = true; again;) {
    again = false;
    const smaller: Program[] = [
      ...best.steps.toReversed().map((step) => without(best, new Set([step.id]))),
      ...best.leaves.map((leaf) => without(best, new Set([leaf.id]))),
      ...best.steps.flatMap((step, i) =>
        step.evaluate ? [{ ...best, steps: best.steps.with(i, { ...step, evaluate: false }) }] : []
      ),
      ...(best.compile ? [{ ...best, compile: false }] : []),
    ];
    for (const next of smaller) {
      if (next.leaves.length === 0 || !fails(next)) continue;
      best = next;
      again = true;
      break;
    }
  }
  return best;
}

/** A program as text, one line a value. */
export function describe({ leaves, steps, fuse, compile }: Program): string {
  const how = `${fuse ? "fused" : "not fused"}${compile ? ", compiled" : ""}`;
  return [
    how,
    ...leaves.map((l) => `  ${l.id} = ${l.dtype} (${l.shape})${l.data.length <= 24 ? ` [${l.data.join(", ")}]` : ""}`),
    ...steps.map((s) =>
      `  ${s.id} = ${s.op}(${[...s.args.map((a) => `#${a}`), ...s.p.map((v) => JSON.stringify(v))].join(", ")})` +
      `: ${s.dtype}${s.evaluate ? "; eval" : ""}`
    ),
  ].join("\n");
}
