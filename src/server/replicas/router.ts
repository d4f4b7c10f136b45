/**
 * Chooses the replica of a request: the one that has read the longest prefix of its prompt, if it is not much busier than others.
 *
 * @module
 */

import { Prefixes } from "./prefixes.ts";

/**
 * A replica is too busy for its prefix with more than so many times the requests of the least busy one. It may have one more for so many
 * blocks of the prefix, up to a limit. So a short prefix, which saves little, does not send all requests to one replica.
 */
const BUSY_FACTOR = 1.5;
const BLOCKS_OF_REQUEST = 16;
const MOST_MORE = 8;

/** A replica that was chosen. */
export interface Choice {
  /** Its number. */
  readonly replica: number;
  /** Blocks of the prompt that it has read. */
  readonly matched: number;
  /** "prefix" where these decided, "load" where the number of its requests did. */
  readonly reason: "prefix" | "load";
}

/** What is known of a replica. */
interface Known {
  readonly prefixes: Prefixes;
  /** Requests that it answers, those that wait in its queue among them. */
  load: number;
  /** The number of the last request that it got. */
  last: number;
}

/** The requests and the prefixes of replicas. */
export class Router {
  readonly #known: readonly Known[];
  #requests = 0;

  /** Routes among so many replicas, each of which knows `blocks` blocks at most. */
  constructor(count: number, blocks?: number) {
    this.#known = Array.from({ length: count }, () => ({ prefixes: new Prefixes(blocks), load: 0, last: 0 }));
  }

  /** Requests that each replica answers. */
  get loads(): readonly number[] {
    return this.#known.map(({ load }) => load);
  }

  /** The replica for a prompt, of those that may be asked; undefined if there is none. Nothing changes until {@link begin}. */
  choose(blocks: readonly number[], candidates: readonly number[]): Choice | undefined {
    const rows = candidates.map((replica) => {
      const { prefixes, load, last } = this.#known[replica];
      return { replica, matched: prefixes.match(blocks), load, last };
    });
    if (rows.length === 0) return undefined;
    const least = Math.min(...rows.map(({ load }) => load));
    const most = (matched: number): number => BUSY_FACTOR * least + Math.min(matched / BLOCKS_OF_REQUEST, MOST_MORE);
    const [known] = rows.filter(({ matched, load }) => matched > 0 && load <= most(matched))
      .sort((a, b) => b.matched - a.matched || a.load - b.load || a.last - b.last);
    if (known) return { replica: known.replica, matched: known.matched, reason: "prefix" };
    const [idle] = rows.sort((a, b) => a.load - b.load || b.matched - a.matched || a.last - b.last);
    return { replica: idle.replica, matched: idle.matched, reason: "load" };
  }

  /** Counts a request of a replica, which has read its prompt from now on. Returns what counts its end, once. */
  begin(replica: number, blocks: readonly number[]): () => void {
    const known = this.#known[replica];
    known.prefixes.add(blocks);
    known.load++;
    known.last = ++this.#requests;
    let open = true;
    return () => {
      if (open) known.load--;
      open = false;
    };
  }

  /** Forgets the prefixes of a replica that has ended. */
  forget(replica: number): void {
    this.#known[replica].prefixes.clear();
  }
}
