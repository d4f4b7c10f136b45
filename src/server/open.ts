/**
 * Opens a model for the server: its weights and the pages of its engine, so that both fit into the room that it gets.
 *
 * @module
 */

import { deviceMemory, lm, utils } from "../../mod.ts";
import type { Tensor } from "../../mod.ts";
import type { Room } from "./models.ts";
import type { Served } from "./served.ts";

/** How a server's models are opened. */
export interface OpenOptions {
  /** Options of `load`, but for the memory. */
  readonly load?: lm.LoadOptions;
  /** Options of the engine, but for the memory. */
  readonly engine?: Omit<lm.EngineOptions, "kvBytes" | "memoryBytes" | "speculation">;
  /** A smaller model that drafts. Default none. */
  readonly draft?: string | URL | undefined;
  /** The engine's speculation, with the draft model where there is one. Default none. */
  readonly speculation?: (draft: lm.DraftModel | undefined) => Pick<lm.EngineOptions, "speculation">;
  /** Bytes of keys and values of this model. Default a share of the room, which is the same for all models that are not loaded. */
  readonly kvBytes?: number | undefined;
}

/** A model that was opened, and where it is. */
export interface Opened extends Served, Pick<lm.Loaded, "device" | "parts"> {}

/**
 * Loads a model and makes its engine. Throws what `lm.load` throws: an LlmError with code "memory" if weights and pages need more
 * than there is room. Experts stay in host memory only if there will never be more room, or as
 * `load.weightBytes` says.
 */
export async function openModel(
  id: string,
  source: string | URL,
  room: Room,
  { load, engine, draft: draftSource, speculation, kvBytes }: OpenOptions = {},
): Promise<Opened> {
  const memoryBytes = Math.max(0, room.bytes - (kvBytes ?? 0));
  const whole = room.isAll ? {} : { weightBytes: Infinity };
  const limit = load?.weightBytes === undefined ? whole : {};
  const loaded = await lm.load(source, { ...load, ...limit, ...(memoryBytes < Infinity && { memoryBytes }) });
  const { model, tokenizer } = loaded;
  let draft: lm.Loaded | undefined;
  try {
    if (draftSource !== undefined) {
      const rest = Math.max(0, memoryBytes - weightsOf(loaded).device);
      draft = await lm.load(draftSource, {
        ...draftOptions(load),
        ...whole,
        ...(rest < Infinity && { memoryBytes: rest }),
      });
    }
    const all = [loaded, ...(draft ? [draft] : [])].map(weightsOf);
    const weights = all.reduce((sum, { device }) => sum + device, 0);
    const free = Math.max(0, Math.floor((room.bytes - weights) / room.models));
    const made = new lm.Engine(model, tokenizer, {
      ...engine,
      ...speculation?.(draft),
      ...(kvBytes !== undefined && { kvBytes }),
      ...(free < Infinity && { memoryBytes: free }),
    });
    const bytes = weights + made.metrics.kvBytes;
    const hostBytes = all.reduce((sum, { host }) => sum + host, 0);
    return { ...loaded, hostBytes, id, engine: made, bytes, ...(draft && { draft: draft.model }) };
  } catch (error) {
    draft?.model[Symbol.dispose]();
    model[Symbol.dispose](); // its engine cannot be had
    throw error;
  }
}

/**
 * Options of `load` for a draft model, which is on one device: where layers are on several, the one that chooses tokens. The limit of the
 * weights is of the other model.
 */
export function draftOptions({ devices, split: _, weightBytes: __, ...load }: lm.LoadOptions = {}): lm.LoadOptions {
  return { ...load, ...(devices && { device: devices.at(-1)! }) };
}

/** Bytes of the weights of a model: those in memory of its devices, and those in the host's where that is another one. */
function weightsOf(loaded: lm.Loaded): { readonly device: number; readonly host: number } {
  const all = utils.treeReduce((sum: number, { nbytes }: Tensor) => sum + nbytes, loaded.model.parameters(), 0);
  const places = loaded.parts.length > 0 ? loaded.parts : [loaded];
  const host = places.reduce(
    (sum, { device, hostBytes }) => deviceMemory(device).hostTotal > 0 ? sum + hostBytes : sum,
    0,
  );
  return { device: all - host, host };
}
