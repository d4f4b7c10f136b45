/** The state machine that owns which launch mode decoders of a device take, without a device. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import {
  LaunchModes,
  type LaunchQuestion,
  MAX_ATTEMPTS,
  nextState,
  type ProbeEvent,
  type ProbeState,
  type ProbeStore,
} from "../../../src/schedule/decoder/launch_mode.ts";

const STATES: readonly ProbeState[] = ["unknown", "probing", "works", "fails"];
const EVENTS: readonly ProbeEvent[] = [
  "recalled works",
  "recalled fails",
  "begin",
  "match",
  "mismatch",
  "untestable",
  "failed",
];
/** The next states, a row for each state in the order of EVENTS; "" if the event cannot happen. */
const NEXT: Readonly<Record<ProbeState, readonly (ProbeState | "")[]>> = {
  unknown: ["works", "fails", "probing", "", "", "", "fails"],
  probing: ["", "", "", "works", "fails", "fails", "fails"],
  works: ["", "", "", "", "", "", "fails"],
  fails: ["", "", "", "fails", "fails", "fails", "fails"],
};

Deno.test("every event has one outcome in every state, or is refused", () => {
  for (const state of STATES) {
    EVENTS.forEach((event, i) => {
      const next = NEXT[state][i];
      if (next === "") assertThrows(() => nextState(state, event), Error, `"${event}" cannot happen`);
      else assertEquals(nextState(state, event), next, `${state}, ${event}`);
    });
  }
});

/** Answers that stay in memory, and the program's end by itself. */
class Memory implements ProbeStore {
  readonly answers = new Map<string, string>();
  readonly lines: string[] = [];
  readonly #leaving = new Set<() => void>();

  recall(key: string): string | undefined {
    return this.answers.get(key);
  }

  remember(key: string, answer: string): void {
    this.answers.set(key, answer);
  }

  whileRunning(leave: () => void): Disposable {
    this.#leaving.add(leave);
    return { [Symbol.dispose]: () => void this.#leaving.delete(leave) };
  }

  explain(line: string): void {
    this.lines.push(line);
  }

  exit(): void {
    for (const leave of this.#leaving) leave();
  }
}

const LOOP: LaunchQuestion = { loops: true, fits: true, mode: "auto", concurrent: true };
const key = (): string => "a";

Deno.test("one dispatch that is known to be slower is taken on request alone", () => {
  const modes = new LaunchModes(new Memory());
  for (const mode of ["auto", "try"] as const) {
    assertEquals(modes.modeOf({ ...LOOP, slower: true, mode }, key), "barriers");
  }
  assertEquals(modes.modeOf({ ...LOOP, slower: true, mode: "persistent" }, key), "persistent");
});

Deno.test("a probe decides what loops take, once, and keeps it for other processes", async () => {
  for (const [same, mode, answer] of [[true, "persistent", "works"], [false, "barriers", "fails"]] as const) {
    const memory = new Memory();
    const launchModes = new LaunchModes(memory);
    assertEquals(launchModes.modeOf(LOOP, key), undefined);
    let checks = 0;
    let begun: string | undefined;
    const check = (begins: () => void): Promise<boolean> => {
      checks++;
      assertEquals(memory.recall("a"), undefined, "nothing is noted before the first dispatch");
      begins();
      begun = memory.recall("a");
      return Promise.resolve(same);
    };
    const probes = [launchModes.probe("a", check), launchModes.probe("a", check)];
    assertEquals([launchModes.stateOf("a"), launchModes.modeOf(LOOP, key)], ["probing", undefined]);
    assertEquals(await Promise.all(probes), [same, same]);
    assertEquals([checks, begun, memory.recall("a")], [1, "trying 1", answer]);
    assertEquals(launchModes.modeOf(LOOP, key), mode);
    assertEquals(await launchModes.probe("a", check), same);
    assertEquals(checks, 1);
    assertEquals(new LaunchModes(memory).modeOf(LOOP, key), mode, "another process finds it");
    assertEquals(launchModes.modeOf(LOOP, () => "b"), undefined, "another kind is not known");
  }
});

Deno.test("barriers where it is no loop, nothing fits, or the device is not likely to run all workgroups", () => {
  const memory = new Memory();
  memory.remember("a", "works");
  const rows: readonly (readonly [Partial<LaunchQuestion>, string])[] = [
    [{}, "persistent"],
    [{ loops: false }, "barriers"],
    [{ fits: false }, "barriers"],
    [{ concurrent: false }, "barriers"],
    [{ concurrent: false, mode: "try" }, "persistent"],
    [{ mode: "barriers" }, "barriers"],
    [{ mode: "per_phase" }, "per_phase"],
    [{ mode: "persistent", concurrent: false }, "persistent"],
    [{ mode: "persistent", loops: false }, "barriers"],
  ];
  for (const [change, mode] of rows) {
    assertEquals(new LaunchModes(memory).modeOf({ ...LOOP, ...change }, key), mode, JSON.stringify(change));
  }
});

Deno.test("a probe that cannot be made leaves nothing on disk, and is not made again by the process", async () => {
  const memory = new Memory();
  const launchModes = new LaunchModes(memory);
  const gone = (begins: () => void): Promise<boolean> => {
    begins();
    return Promise.reject(new Error("the weights went"));
  };
  assertEquals(await launchModes.probe("a", gone), false);
  assertEquals([memory.recall("a"), launchModes.modeOf(LOOP, key)], ["trying 0", "barriers"]);
  assert(memory.lines.some((line) => line.includes("the weights went")));
  assertEquals(new LaunchModes(memory).modeOf(LOOP, key), undefined, "another process may");
});

Deno.test("a program that ends by itself while it probes is no attempt, one that is killed is", () => {
  const memory = new Memory();
  for (let killed = 1; killed <= MAX_ATTEMPTS; killed++) {
    const launchModes = new LaunchModes(memory);
    assertEquals(launchModes.modeOf(LOOP, key), undefined, `${killed - 1} attempts`);
    const never = new Promise<boolean>(() => {});
    launchModes.probe("a", (begins) => (begins(), never));
    assertEquals(memory.recall("a"), `trying ${killed}`);
    memory.exit();
    assertEquals(memory.recall("a"), `trying ${killed - 1}`);
    memory.remember("a", `trying ${killed}`); // killed instead
  }
  assertEquals(new LaunchModes(memory).modeOf(LOOP, key), "barriers");
  assert(memory.lines.some((line) => line.includes(`tested ${MAX_ATTEMPTS} times without an end`)));
});

Deno.test("a failed loop ends it for all decoders of the device; only what tells of the device is kept", async () => {
  for (const lasting of [true, false]) {
    const memory = new Memory();
    const launchModes = new LaunchModes(memory);
    await launchModes.probe("a", (begins) => (begins(), Promise.resolve(true)));
    let finish = (_: boolean): void => {};
    const late = launchModes.probe("b", (begins) => (begins(), new Promise<boolean>((resolve) => finish = resolve)));
    launchModes.fail(lasting);
    const modes = ["auto", "try", "persistent"] as const;
    for (const mode of modes) assertEquals(launchModes.modeOf({ ...LOOP, mode }, key), "barriers", mode);
    assertEquals(launchModes.modeOf(LOOP, () => "never asked"), "barriers");
    assertEquals(memory.recall("a"), lasting ? "fails" : "works");
    const check = (): Promise<boolean> => Promise.reject(new Error("it was checked"));
    for (const kind of ["a", "c"]) {
      assertEquals(await launchModes.probe(kind, check), false, "nothing is begun any more");
    }
    assertEquals(memory.recall("c"), undefined);
    assert(!memory.lines.some((line) => line.includes("it was checked")));
    finish(true);
    assertEquals(await late, false, "a probe that ends later changes nothing");
    assertEquals([launchModes.stateOf("b"), memory.recall("b")], ["fails", lasting ? "fails" : "trying 0"]);
  }
});
