/**
 * Opens a model for the server: its weights and the pages of its engine, so that both fit into the room that it gets.
 *
 * @module
 */

import { lm, utils } from "../../mod.ts";
import type { Tensor } from "../../mod.ts";
import type { Room } from "./models.ts";
import type { Served } from "./served.ts";

/** How a server's models are opened. */
export interface OpenOptions {
  /** Options of `load`, but for the memory. */
  readonly load?: lm.LoadOptions;
  /** Options of the engine, but for the memory. */
  readonly engine?: Omit<lm.EngineOptions, "kvBytes" | "memoryBytes">;
  /** Bytes of keys and values of this model. Default a share of the room, which is the same for all models that are not loaded. */
  readonly kvBytes?: number | undefined;
}

/** A model that was opened, and the name of its device. */
export interface Opened extends Served {
  readonly device: string;
}

/**
 * Loads a model and makes its engine. Throws what `lm.load` throws: an LlmError with code "memory" if weights and pages need more
 * than there is room.
 */
export async function openModel(
  id: string,
  source: string | URL,
  room: Room,
  { load, engine, kvBytes }: OpenOptions = {},
): Promise<Opened> {
  const memoryBytes = Math.max(0, room.bytes - (kvBytes ?? 0));
  const loaded = await lm.load(source, { ...load, ...(memoryBytes < Infinity && { memoryBytes }) });
  const { model, tokenizer } = loaded;
  try {
    const weights = utils.treeReduce((sum: number, { nbytes }: Tensor) => sum + nbytes, model.parameters(), 0);
    const free = Math.max(0, Math.floor((room.bytes - weights) / room.models));
    const made = new lm.Engine(model, tokenizer, {
      ...engine,
      ...(kvBytes !== undefined && { kvBytes }),
      ...(free < Infinity && { memoryBytes: free }),
    });
    return { ...loaded, id, engine: made, bytes: weights + made.metrics.kvBytes };
  } catch (error) {
    model[Symbol.dispose](); // its engine cannot be had
    throw error;
  }
}
