/**
 * The replicas of a front: processes that are watched, and started again if they end.
 *
 * @module
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { HttpClient } from "../../../ffi/http/client.ts";

/** A replica that runs. */
export interface ReplicaProcess {
  /** Its address. */
  readonly url: string;
  /** The key that its requests must have. */
  readonly key: string;
  /** Its device. */
  readonly device: string;
  /** Resolves when it has ended, with how. */
  readonly ended: Promise<string>;
  /** Has it ask no user for consent any more. */
  closeQuestions(): void;
  /** Has it answer the requests that are there, and end. */
  drain(): void;
  /** Ends it at once. */
  kill(): void;
}

/** What happens to a replica. */
export interface ReplicaEvent {
  readonly replica: number;
  readonly event: "ended" | "failed" | "restarted" | "unresponsive";
  /** What happened, in one line. */
  readonly message: string;
}

/** How replicas are started and watched. */
export interface FleetOptions {
  /** How many. */
  readonly count: number;
  /** Starts one, by its number. The signal ends a start. */
  readonly start: (replica: number, signal: AbortSignal) => Promise<ReplicaProcess>;
  /** Milliseconds between two looks at the health of one. Default 1,000. */
  readonly healthMs?: number;
  /** Milliseconds without an answer after which one counts as dead, and is killed. Default 30,000. */
  readonly deadMs?: number;
  /** Milliseconds before one that ended is started again; twice as many after each further time, up to a minute. Default 500. */
  readonly pauseMs?: number;
  /** Called with what happens. */
  readonly onEvent?: (event: ReplicaEvent) => void;
}

/** Longest pause before a start. */
const MAX_PAUSE_MS = 60_000;
/** One that ran so long before its end is started again after the first pause. */
const STEADY_MS = 60_000;

/** A replica's process, and what says that it has ended. */
export interface Running extends ReplicaProcess {
  /** Is aborted then: connections that were used before do not always tell. */
  readonly gone: AbortSignal;
}

/** One replica. */
export interface Replica {
  readonly number: number;
  /** Its process; undefined while there is none. */
  readonly process: Running | undefined;
  /** How often it was started again. */
  readonly restarts: number;
}

interface MutableReplica extends Replica {
  process: Running | undefined;
  restarts: number;
  pauseMs: number;
}

/** Replicas that run until they are drained. */
export class Fleet {
  readonly #options: FleetOptions;
  readonly #client: HttpClient;
  readonly #replicas: readonly MutableReplica[];
  readonly #ending = new AbortController();
  #lives: readonly Promise<void>[] = [];

  private constructor(options: FleetOptions, client: HttpClient) {
    this.#options = options;
    this.#client = client;
    const { count, pauseMs = 500 } = options;
    this.#replicas = Array.from({ length: count }, (_, number) => ({
      number,
      process: undefined,
      restarts: 0,
      pauseMs,
    }));
  }

  /** Starts all at once. Throws what the first one throws that does not start, after the others have ended. */
  static async start(options: FleetOptions, client: HttpClient): Promise<Fleet> {
    const fleet = new Fleet(options, client);
    const starts = fleet.#replicas.map(async (replica) => {
      replica.process = await fleet.#start(replica);
    });
    try {
      await Promise.all(starts);
    } catch (error) {
      fleet.#ending.abort();
      await Promise.allSettled(starts);
      await Promise.all(fleet.ready.map(({ process }) => (process.kill(), process.ended)));
      throw error;
    }
    fleet.#lives = fleet.#replicas.map((replica) => fleet.#live(replica));
    return fleet;
  }

  /** All of them. */
  get all(): readonly Replica[] {
    return this.#replicas;
  }

  /** Those that run. */
  get ready(): readonly (Replica & { readonly process: Running })[] {
    return this.#replicas.filter((one): one is MutableReplica & { process: Running } => !!one.process);
  }

  /** Starts none any more, and has those that run ask no user for consent. */
  closeQuestions(): void {
    this.#ending.abort();
    for (const { process } of this.ready) process.closeQuestions();
  }

  /** Has all answer the requests that are there, and end. */
  async drain(): Promise<void> {
    this.closeQuestions();
    for (const { process } of this.ready) process.drain();
    await Promise.all(this.#lives);
  }

  async #start({ number }: Replica): Promise<Running> {
    const process = await this.#options.start(number, this.#ending.signal);
    const gone = new AbortController();
    void process.ended.then((how) => gone.abort(new Error(how)));
    return { ...process, gone: gone.signal };
  }

  /** Watches a replica, and starts it again whenever it ends. */
  async #live(replica: MutableReplica): Promise<void> {
    const { signal } = this.#ending;
    let { process } = replica;
    while (process !== undefined) {
      const started = performance.now();
      const how = await this.#watch(replica, process);
      replica.process = undefined;
      if (signal.aborted) return;
      if (performance.now() - started > STEADY_MS) replica.pauseMs = this.#options.pauseMs ?? 500;
      this.#tell(replica, "ended", `${how}; it is started again in ${replica.pauseMs / 1000} s`);
      process = await this.#restart(replica);
      if (process && signal.aborted) process.drain(); // its end is awaited by the next turn
      replica.process = process;
    }
  }

  /** Resolves when a process has ended, with how. Kills one that does not answer. */
  async #watch(replica: Replica, process: ReplicaProcess): Promise<string> {
    const { healthMs = 1000, deadMs = 30_000 } = this.#options;
    const over = new AbortController();
    const look = async (): Promise<void> => {
      let answered = performance.now();
      for (;;) {
        await sleep(healthMs, undefined, { signal: over.signal });
        const limit = Math.max(1, Math.ceil(answered + deadMs - performance.now()));
        try {
          const signals = [over.signal, AbortSignal.timeout(limit)];
          const { pieces } = await this.#client.call({ method: "GET", url: `${process.url}/health`, signals });
          for await (const _ of pieces) { /* that it answers is all */ }
          answered = performance.now();
        } catch {
          if (over.signal.aborted) return;
          if (performance.now() - answered < deadMs) continue;
          this.#tell(replica, "unresponsive", `it has not answered for ${deadMs / 1000} s`);
          return process.kill();
        }
      }
    };
    const looking = look().catch(() => {}); // the sleep ends with the process
    const how = await process.ended;
    over.abort();
    await looking;
    return how;
  }

  /** A new process, after as many tries as it takes; undefined if all are to end. */
  async #restart(replica: MutableReplica): Promise<Running | undefined> {
    const { signal } = this.#ending;
    for (;;) {
      try {
        await sleep(replica.pauseMs, undefined, { signal });
        replica.pauseMs = Math.min(2 * replica.pauseMs, MAX_PAUSE_MS);
        const process = await this.#start(replica);
        replica.restarts++;
        this.#tell(replica, "restarted", `it serves again on ${process.device}`);
        return process;
      } catch (error) {
        if (signal.aborted) return undefined;
        const { message } = error as Error;
        this.#tell(replica, "failed", `${message}; it is started again in ${replica.pauseMs / 1000} s`);
      }
    }
  }

  #tell({ number: replica }: Replica, event: ReplicaEvent["event"], message: string): void {
    this.#options.onEvent?.({ replica, event, message });
  }
}
