/**
 * Conversations of /v1/responses that a later request may continue, held in memory.
 *
 * @module
 */

import type { lm } from "../../../mod.ts";
import type { Item } from "./response_items.ts";

/** A response that is kept. */
export interface StoredResponse {
  /** The response as its client got it. */
  readonly response: Readonly<Record<string, unknown>>;
  /** The conversation with the answer, but without instructions, which hold for one response. */
  readonly messages: readonly lm.ChatMessage[];
  /** The items of its conversation before the answer, those of earlier responses among them. */
  readonly items: readonly Item[];
}

/** Most characters of what is held; the oldest responses go first. */
const MAX_CHARACTERS = 64 * 2 ** 20;

/** Responses by id. */
export class ResponseStore {
  readonly #stored = new Map<string, StoredResponse & { readonly size: number }>();
  readonly #limit: number;
  #size = 0;

  /** Holds no more than some characters of JSON. */
  constructor(limit: number = MAX_CHARACTERS) {
    this.#limit = limit;
  }

  /** A response. */
  get(id: string): StoredResponse | undefined {
    return this.#stored.get(id);
  }

  /** Keeps a response; drops the oldest ones if there is no room. */
  set(id: string, stored: StoredResponse): void {
    const size = JSON.stringify([stored.response, stored.messages, stored.items]).length;
    if (size > this.#limit) return;
    this.#stored.set(id, { ...stored, size });
    this.#size += size;
    for (const oldest of this.#stored.keys()) {
      if (this.#size <= this.#limit) break;
      this.delete(oldest);
    }
  }

  /** Drops a response; false if there is none. */
  delete(id: string): boolean {
    this.#size -= this.#stored.get(id)?.size ?? 0;
    return this.#stored.delete(id);
  }
}
