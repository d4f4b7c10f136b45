/**
 * Which part of a step computes each node: steps are cut at collectives, and where data goes from one device to another.
 *
 * A node is in the first part that has all of its inputs. On several devices it is in the last one that its readers allow, so that each
 * device has few parts. A node is on the device of its stream, of its weights, or of its inputs. Leaves, and what is made of
 * them and of the state alone without a stream, are in every part that reads them.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { getBackend } from "../backend/devices.ts";
import { ValueError } from "../graph/error.ts";
import type { Node } from "../graph/node.ts";
import { streamsUsed } from "../graph/stream.ts";
import { VIEWS } from "./plan/donation.ts";
import { inputsFirst } from "./plan/order.ts";
import type { Storage } from "./plan/storage.ts";
import { backendOf } from "./realize.ts";
import type { StepGraph } from "./step_graph.ts";

/** The parts of a step. */
export interface PartNumbers {
  /** The nodes, inputs first. */
  readonly order: readonly Node[];
  /** The part of each node; undefined for one that is in every part that reads it. */
  readonly partOf: ReadonlyMap<Node, number | undefined>;
  /** The device of each part. */
  readonly devices: readonly Backend[];
  /** The device of each array of the state. */
  readonly homes: readonly Backend[];
  readonly collectives: ReadonlySet<Node>;
}

/** The device that says by itself where a node is computed. */
function ownDevice({ stored, stream }: Node): Backend | undefined {
  if (stored) return (stored.storage as Storage).backend;
  return stream && getBackend(stream.deviceName);
}

/** The devices that nodes and the state name, those of inputs first; none where no program has used a stream. */
function devicesOf(outputs: readonly Node[], state: readonly Node[]): Set<Backend> {
  if (!streamsUsed()) return new Set();
  const order = inputsFirst(outputs, (node) => node.inputs).filter(({ stored, inputs }) => stored || inputs.length > 0);
  return new Set([...state, ...order].map(ownDevice).filter((device) => device !== undefined));
}

/** The device of a step over nodes of a state; of several any. */
export function stepBackend(outputs: readonly Node[], state: readonly Node[]): Backend {
  const devices = devicesOf(outputs, state);
  return devices.size > 1 ? [...devices][0] : backendOf([...outputs, ...state]);
}

/** The parts of a step; undefined where it is one. `state` has the arrays that it is traced for. */
export function numberParts(graph: StepGraph, state: readonly Node[]): PartNumbers | undefined {
  const order = inputsFirst(graph.outputs, (node) => node.inputs);
  const collectives = new Set(order.filter(({ op }) => op === "collective"));
  const devices = devicesOf(graph.outputs, state);
  if (devices.size < 2) {
    return collectives.size === 0 ? undefined : numberByCollectives(graph, order, collectives);
  }
  if (collectives.size > 0) throw new ValueError("a loop on several devices cannot compute with other processes");
  return numberByDevices(graph, state, order);
}

function numberByCollectives(
  { parameters, backend, state }: StepGraph,
  order: readonly Node[],
  collectives: ReadonlySet<Node>,
): PartNumbers {
  const partOf = new Map<Node, number | undefined>();
  const ofState = new Set<Node>(parameters);
  let last = 0;
  for (const node of order) {
    const depends = node.inputs.some((input) => ofState.has(input));
    if (depends) ofState.add(node);
    const froms = node.inputs.map((input) => {
      const part = partOf.get(input);
      return part === undefined ? undefined : part + (collectives.has(input) ? 1 : 0);
    }).filter((from) => from !== undefined);
    const anywhere = froms.length === 0 && (VIEWS.has(node.op) || !depends) && !collectives.has(node);
    const part = anywhere ? undefined : Math.max(0, ...froms);
    partOf.set(node, part);
    last = Math.max(last, (part ?? 0) + (collectives.has(node) ? 1 : 0));
  }
  const devices = Array.from({ length: last + 1 }, () => backend);
  return { order, partOf, devices, homes: state.map(() => backend), collectives };
}

function numberByDevices(graph: StepGraph, state: readonly Node[], order: readonly Node[]): PartNumbers {
  const placed = placeNodes(order);
  const levels = levelsOf(order, placed);
  const steps = [...new Set(levels.values())].sort((a, b) => a - b);
  const parts = steps.flatMap((level) =>
    [...new Set(order.filter((node) => levels.get(node) === level).map((node) => placed.get(node)!))].map((device) => ({
      level,
      device,
    }))
  );
  const partOf = new Map(order.map((node) => {
    const [level, device] = [levels.get(node), placed.get(node)];
    return [node, level === undefined ? undefined : parts.findIndex((p) => p.level === level && p.device === device)];
  }));
  const devices = parts.map(({ device }) => device);
  const homes = homesOf(graph, state, { order, partOf, devices });
  const changed = graph.outputs.flatMap((node, i) => node === graph.parameters[i] ? [] : homes[graph.parts[i].node]);
  devices.push(...new Set(changed).difference(new Set(devices))); // those that only compute new values of the state from the state
  return { order, partOf, devices, homes, collectives: new Set() };
}

/** The device of each node that depends on the state and is not computed wherever it is read. */
function placeNodes(order: readonly Node[]): Map<Node, Backend> {
  const placed = new Map<Node, Backend>();
  /** The device of the weights that other nodes are made of. */
  const weights = new Map<Node, Backend>();
  const ofState = new Set<Node>();
  for (const node of order) {
    if (node.stored) weights.set(node, ownDevice(node)!);
    if (node.op === "parameter") ofState.add(node);
    if (node.inputs.length === 0) continue;
    const made = node.inputs.flatMap((input) => weights.get(input) ?? []);
    const depends = node.inputs.some((input) => ofState.has(input));
    const device = depends
      ? ownDevice(node) ?? node.inputs.flatMap((input) => placed.get(input) ?? []).at(-1) ?? made.at(0)
      : made.at(0);
    if (depends) ofState.add(node);
    if (device === undefined) continue;
    const other = made.find((weight) => weight !== device);
    if (other) {
      throw new ValueError(
        `arrays of ${other.name} and ${device.name} cannot be used together in a loop; move one with x.to(device)`,
      );
    }
    (depends ? placed : weights).set(node, device);
  }
  return placed;
}

/** The number of changes of device before each placed node, as late as its readers allow. */
function levelsOf(order: readonly Node[], placed: ReadonlyMap<Node, Backend>): Map<Node, number> {
  const levels = new Map<Node, number>();
  const last = new Map<Backend, number>();
  for (const node of order) {
    const device = placed.get(node);
    if (!device) continue;
    const befores = node.inputs.filter((input) => placed.has(input)).map((input) =>
      levels.get(input)! + (placed.get(input) === device ? 0 : 1)
    );
    const level = Math.max(0, ...befores);
    levels.set(node, level);
    last.set(device, Math.max(last.get(device) ?? 0, level));
  }
  const latest = new Map<Node, number>();
  for (const node of order.toReversed()) {
    const device = placed.get(node);
    if (!device) continue;
    const level = Math.min(latest.get(node) ?? Infinity, last.get(device)!);
    levels.set(node, level);
    for (const input of node.inputs) {
      const from = placed.get(input);
      if (from) latest.set(input, Math.min(latest.get(input) ?? Infinity, level - (from === device ? 0 : 1)));
    }
  }
  return levels;
}

/**
 * The device of each array of a state: the one that computes its new value. What no part computes stays where it is. If it is nowhere yet,
 * it goes to the device that reads it first. What changes with the state alone, such as a position, goes to the last device. In a step that
 * leaves nothing for others it goes to the first one. So that need not wait for the last one before its next step.
 */
function homesOf(
  { parameters, outputs, parts }: StepGraph,
  state: readonly Node[],
  { order, partOf, devices }: Pick<PartNumbers, "order" | "partOf" | "devices">,
): Backend[] {
  const homes: (Backend | undefined)[] = state.map(() => undefined);
  outputs.forEach((node, i) => {
    const part = partOf.get(node);
    if (part === undefined) return;
    const { node: of } = parts[i];
    if ((homes[of] ??= devices[part]) !== devices[part]) {
      throw new ValueError(
        `the parts of an array of a loop's state are on ${homes[of]!.name} and ${devices[part].name}`,
      );
    }
  });
  const readers = firstReaders(order, partOf);
  const isOwn = (node: Node, i: number): boolean => {
    const part = partOf.get(node);
    return part === undefined || readsOn(parameters[i], devices[part], { order, partOf, devices });
  };
  const isSettled = outputs.every(isOwn);
  return homes.map((home, of) => {
    if (home) return home;
    const own = ownDevice(state[of]);
    const changes = outputs.some((node, i) => parts[i].node === of && node !== parameters[i]);
    if (own && !changes) return own;
    const firsts = parameters.flatMap((node, i) => parts[i].node === of ? readers.get(node) ?? [] : []);
    const otherwise = isSettled ? 0 : devices.length - 1; // where no part reads it
    const at = (changes && !isSettled) || firsts.length === 0 ? otherwise : Math.min(...firsts);
    return devices[at] ?? own ?? state.map(ownDevice).find((device) => device !== undefined)!;
  });
}

/** Whether the parts of a device, and no others, read a parameter. */
function readsOn(
  parameter: Node,
  device: Backend,
  { order, partOf, devices }: Pick<PartNumbers, "order" | "partOf" | "devices">,
): boolean {
  const shown = new Set<Node>([parameter]); // wherever it is read
  let count = 0;
  for (const node of order) {
    if (!node.inputs.some((input) => shown.has(input))) continue;
    const part = partOf.get(node);
    if (part === undefined) shown.add(node);
    else if (devices[part] !== device) return false;
    else count++;
  }
  return count > 0;
}

/** The first part that reads each node that is computed wherever it is read. */
function firstReaders(order: readonly Node[], partOf: PartNumbers["partOf"]): Map<Node, number> {
  const first = new Map<Node, number>();
  for (const node of order.toReversed()) {
    const part = partOf.get(node) ?? first.get(node);
    if (part === undefined) continue;
    for (const input of node.inputs) {
      if (partOf.get(input) === undefined) first.set(input, Math.min(first.get(input) ?? Infinity, part));
    }
  }
  return first;
}
