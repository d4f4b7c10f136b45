/**
 * The launch mode of a decoder: barriers between the dispatches of its layers, or all layers in one dispatch, the
 * megakernel. One owner a device: a state machine for each kind of decoder.
 *
 *     unknown ──begin──► probing ──match─► works
 *        │                  │                │
 *        ├─recalled──► …    └─mismatch───────┴─failed──► fails
 *
 * A megakernel ends only where all of its workgroups run at the same time, which Vulkan does not promise. So a probe compares it with
 * barriers while decoding already goes on with those, and its result is kept on disk. Probes that were begun and never ended may
 * have taken the program or the device with them: after {@link MAX_ATTEMPTS} of these no more is begun.
 *
 * @module
 */

/** How a decoder's layers wait for each other: "per_phase" is the megakernel with one phase to a dispatch, for tests. */
export type LaunchMode = "barriers" | "persistent" | "per_phase";

/** States of the megakernel for a kind of decoder. */
export type ProbeState = "unknown" | "probing" | "works" | "fails";

/** Events of a kind of decoder. */
export type ProbeEvent = "recalled works" | "recalled fails" | "begin" | "match" | "mismatch" | "untestable" | "failed";

/** Every transition there is; an event that a state does not list is a mistake of the caller. */
const TRANSITIONS: Readonly<Record<ProbeState, Readonly<Partial<Record<ProbeEvent, ProbeState>>>>> = {
  unknown: { "recalled works": "works", "recalled fails": "fails", begin: "probing", failed: "fails" },
  probing: { match: "works", mismatch: "fails", untestable: "fails", failed: "fails" },
  works: { failed: "fails" },
  // A probe may end after the failure of a loop.
  fails: { match: "fails", mismatch: "fails", untestable: "fails", failed: "fails" },
};

/** The state after an event. Throws where the event cannot happen in that state. */
export function nextState(state: ProbeState, event: ProbeEvent): ProbeState {
  const next = TRANSITIONS[state][event];
  if (next === undefined) throw new Error(`"${event}" cannot happen to a launch mode that is "${state}"`);
  return next;
}

/** Probes that were begun and not ended, after which no more is begun. */
export const MAX_ATTEMPTS = 3;

/** The store of results that processes share. */
export interface ProbeStore {
  /** The answer to a question; undefined if there is none. */
  recall(key: string): string | undefined;
  /** Keeps an answer. */
  remember(key: string, answer: string): void;
  /** Calls `leave` where the program ends by itself before the scope does. */
  whileRunning(leave: () => void): Disposable;
  /** Prints the result, with VKMX_EXPLAIN. */
  explain(line: string): void;
}

/** Requirements of one decoder, besides the state of its kind. */
export interface LaunchQuestion {
  /** Whether it is a step of a loop, whose state stays. */
  readonly loops: boolean;
  /** Whether the kernels of all layers serve it. */
  readonly fits: boolean;
  /** Whether one dispatch is known to be slower; default false. */
  readonly slower?: boolean;
  /** "auto", "try" on devices that are not likely to run all workgroups at once, or a launch mode. */
  readonly mode: "auto" | "try" | LaunchMode;
  /** Whether the device is likely to run all workgroups of a dispatch at the same time. */
  readonly concurrent: boolean;
}

/** The launch modes of all decoders of one device. */
export class LaunchModes {
  readonly #store: ProbeStore;
  readonly #states = new Map<string, ProbeState>();
  readonly #probes = new Map<string, Promise<boolean>>();
  #failed = false;

  constructor(store: ProbeStore) {
    this.#store = store;
  }

  /** The launch mode of a decoder of the kind `key`; undefined if only a probe can tell, and barriers serve until then. */
  modeOf({ loops, fits, slower = false, mode, concurrent }: LaunchQuestion, key: () => string): LaunchMode | undefined {
    if (!loops || !fits || this.#failed) return "barriers";
    if (mode !== "auto" && mode !== "try") return mode;
    if (slower || (mode === "auto" && !concurrent)) return "barriers";
    const state = this.stateOf(key());
    if (state === "works") return "persistent";
    return state === "fails" ? "barriers" : undefined;
  }

  /** The state of a kind of decoder, from this process or an earlier one. */
  stateOf(key: string): ProbeState {
    if (this.#failed) return "fails";
    const state = this.#states.get(key) ?? "unknown";
    if (state !== "unknown") return state;
    const answer = this.#store.recall(key);
    const attempts = attemptsIn(answer);
    if (answer !== "works" && answer !== "fails" && attempts < MAX_ATTEMPTS) return "unknown";
    const what = attempts > 0 ? `was tested ${attempts} times without an end` : `${answer} (known)`;
    this.#store.explain(`one dispatch for all layers ${what}`);
    return this.#happen(key, answer === "works" ? "recalled works" : "recalled fails");
  }

  /**
   * Whether the megakernel works for a kind of decoder: `check` compares it with barriers, once however many ask. `check` calls `begins`
   * just before the first dispatch runs whose workgroups wait for each other. It rejects if no comparison can be made; then nothing is kept
   * on disk.
   */
  probe(key: string, check: (begins: () => void) => Promise<boolean>): Promise<boolean> {
    const state = this.stateOf(key);
    if (state === "works" || state === "fails") return Promise.resolve(state === "works");
    const running = this.#probes.get(key);
    if (running) return running;
    this.#happen(key, "begin");
    const probe = this.#probe(key, check);
    this.#probes.set(key, probe);
    return probe;
  }

  async #probe(key: string, check: (begins: () => void) => Promise<boolean>): Promise<boolean> {
    const before = attemptsIn(this.#store.recall(key));
    const note = (answer: string): void => this.#store.remember(key, answer);
    const forget = (): void => note(`trying ${before}`);
    using _running = this.#store.whileRunning(forget);
    let event: ProbeEvent;
    try {
      event = await check(() => note(`trying ${before + 1}`)) ? "match" : "mismatch";
      const answer = event === "match" ? "works" : "fails";
      if (!this.#failed) note(answer);
      else if (this.#store.recall(key) !== "fails") forget(); // a loop failed meanwhile, which says more
      this.#store.explain(`one dispatch for all layers ${answer} (tested)`);
    } catch (error) {
      event = "untestable";
      forget();
      const reason = error instanceof Error ? error.message : error;
      this.#store.explain(`one dispatch for all layers cannot be tested: ${reason}`);
    }
    return this.#happen(key, event) === "works";
  }

  /**
   * A loop's steps did not end well: from now on all decoders of the device take barriers. `lasting` failures, of the device and not of
   * what a model computes, are kept on disk.
   */
  fail(lasting: boolean): void {
    this.#failed = true;
    for (const key of this.#states.keys()) {
      this.#happen(key, "failed");
      if (lasting) this.#store.remember(key, "fails");
    }
  }

  #happen(key: string, event: ProbeEvent): ProbeState {
    const next = nextState(this.#states.get(key) ?? "unknown", event);
    this.#states.set(key, next);
    return next;
  }
}

/** Probes that were begun and not ended. */
function attemptsIn(answer: string | undefined): number {
  return Number(/^trying (\d+)$/.exec(answer ?? "")?.[1] ?? 0);
}
