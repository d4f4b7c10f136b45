/**
 * Programs: functions of arrays as lists of steps, without a node of a graph. Files of functions hold them.
 *
 * The values of a program are numbered: its inputs, then its constants, then the results of its steps.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import { makeNode, type Node, type OpAttrs, type OpName } from "../../graph/node.ts";
import { sameShape, type Shape } from "../../graph/shape.ts";
import { inputsFirst } from "../../schedule/plan/order.ts";
import { compositeOf } from "../fast/fused.ts";
import { followShape, isConstant, isFollowed } from "../compile/shapeless.ts";
import { checkStep, type Operand, portableAttrs, type Value } from "./op_table.ts";

/** An input: one with a name is a keyword argument. */
export interface Input extends Value {
  readonly name: string | undefined;
}

/** A value that an op makes of others. */
export interface Step extends Value {
  readonly op: OpName;
  /** Numbers of the values that it reads, all of them smaller than its own. */
  readonly inputs: readonly number[];
  readonly attrs: OpAttrs[OpName];
}

/** One trace of a function. */
export interface Program {
  /** Whether its inputs may have other sizes. */
  readonly shapeless: boolean;
  /** Those without a name come first. */
  readonly inputs: readonly Input[];
  /** Indices of constants, which the programs of a file share. */
  readonly constants: readonly number[];
  readonly steps: readonly Step[];
  /** Numbers of values. */
  readonly outputs: readonly number[];
}

const LEAVES: ReadonlySet<OpName> = new Set(["stored", "data", "file"]);

/** Throws for a step that serves no other sizes than those it was made for. */
function checkFollows(node: Node): void {
  const known = node.op === "full" ? isConstant(node) : isFollowed(node.op);
  if (known) return;
  throw new ValueError(
    `exportFunction() with shapeless found ${node.op}, whose shape does not follow from its inputs: export it for each shape`,
  );
}

/**
 * The program of outputs that were traced on parameters; `constant` gives a captured array an index. With `shapeless`, nodes that are
 * older than `first` are the same for all shapes. Throws a ValueError for nodes that files cannot hold.
 */
export function programOf(
  inputs: readonly Input[],
  parameters: readonly Node[],
  outputs: readonly Node[],
  shapeless: boolean,
  first: number,
  constant: (node: Node) => number,
): Program {
  const order = inputsFirst(outputs, (node) => node.inputs);
  const leaves = order.filter((node) => LEAVES.has(node.op));
  const numbers = new Map([...parameters, ...leaves].map((node, i) => [node, i]));
  const steps: Step[] = [];
  for (const node of order) {
    if (numbers.has(node)) continue;
    if (node.op === "parameter") {
      throw new ValueError("exportFunction() cannot be called in a function that is being compiled or transformed");
    }
    if (shapeless && node.id > first) checkFollows(node);
    const { op, shape, dtype } = node;
    const step = { op, inputs: node.inputs.map((x) => numbers.get(x)!), shape, dtype, attrs: portableAttrs(node) };
    checkStep("exportFunction()", step, node.inputs);
    numbers.set(node, parameters.length + leaves.length + steps.length);
    steps.push(step);
  }
  return {
    shapeless,
    inputs,
    constants: leaves.map(constant),
    steps,
    outputs: outputs.map((node) => numbers.get(node)!),
  };
}

/** The shape and dtype of a program's value at its tracing. */
function valueAt({ inputs, constants, steps }: Program, all: readonly Value[], at: number): Value {
  if (at < inputs.length) return inputs[at];
  const place = at - inputs.length;
  return place < constants.length ? all[constants[place]] : steps[place - constants.length];
}

/** Numbers of the steps whose sizes depend on the sizes of inputs. */
function sizedSteps({ inputs, constants, steps }: Program): ReadonlySet<number> {
  const sized = new Set(inputs.keys());
  steps.forEach((step, i) => {
    if (step.inputs.some((at) => sized.has(at))) sized.add(inputs.length + constants.length + i);
  });
  return sized;
}

/** The results of a program for inputs. Throws a ShapeError if these are of sizes that it does not serve. */
export function runProgram(program: Program, inputs: readonly Node[], constants: readonly Node[]): Node[] {
  const made: Node[] = [...inputs, ...program.constants.map((i) => constants[i])];
  const sized = program.shapeless ? sizedSteps(program) : undefined;
  for (const step of program.steps) {
    const { op, dtype, attrs } = step;
    const own = step.inputs.map((i) => made[i]);
    let shape: Shape = step.shape;
    if (sized?.has(made.length)) {
      const traced = step.inputs.map((i) => valueAt(program, constants, i));
      shape = followShape({ op, shape, attrs, inputs: traced }, own.map((node) => node.shape));
      checkStep("importFunction()", { ...step, shape }, own);
    }
    made.push(makeNode(op, own, shape, dtype, attrs, compositeOf(op)));
  }
  return program.outputs.map((i) => made[i]);
}

/** Steps of a program in order. Throws if a step reads a value that does not exist yet, or does not fit its inputs. */
export function checkProgram(what: string, program: Program, constants: readonly Value[]): void {
  const values: Operand[] = [
    ...program.inputs,
    ...program.constants.map((i) => constants[i]),
  ];
  const sized = program.shapeless ? sizedSteps(program) : undefined;
  for (const step of program.steps) {
    const own = step.inputs.map((i) => values[i]);
    if (own.includes(undefined as never)) throw new ValueError(`${what} has a ${step.op} that reads what comes later`);
    checkStep(what, step, own);
    if (sized?.has(values.length) && !isFollowed(step.op)) {
      throw new ValueError(`${what} has a ${step.op}, which serves no other shapes`);
    }
    values.push(step.op === "quantize" ? { ...step, source: own[0].dtype } : step);
  }
  if (program.outputs.some((i) => values[i] === undefined || values[i].op === "quantize")) {
    throw new ValueError(`${what} has an output that is not there`);
  }
}

/** Whether two arrays are of one dtype and shape, or of one number of axes where `shapeless`. */
export function sameValue(a: Value, b: Value, shapeless: boolean): boolean {
  return a.dtype === b.dtype && (shapeless ? a.shape.length === b.shape.length : sameShape(a.shape, b.shape));
}
