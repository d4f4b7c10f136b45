/**
 * The models of a server: loaded when a request asks for one, unloaded when none has for a while.
 *
 * All share the memory of one device: weights and pages of all together stay within one budget. A model that does not fit has idle ones
 * unloaded, the one used longest ago first. Models are loaded one after the other.
 *
 * @module
 */

import { clearCache, lm } from "../../mod.ts";
import { quoted } from "../graph/error.ts";
import { ModelNames } from "./model_names.ts";
import type { Served } from "./served.ts";

/** What the models in memory leave to one that is to be loaded. */
export interface Room {
  /** Bytes of the device for weights and pages. */
  readonly bytes: number;
  /** Models that may come to share them: those that are not loaded, this one among them. */
  readonly models: number;
  /** Whether no other model is loaded, so that there will never be more room. */
  readonly isAll: boolean;
}

/** How models are loaded and kept. */
export interface ModelsOptions {
  /** Loads the model of a name. Throws an LlmError with code "memory" if it needs more than there is room. */
  readonly open: (id: string, room: Room) => Promise<Served>;
  /** Bytes of the device for the weights and pages of all models. Default no limit. */
  readonly memoryBytes?: number;
  /** Milliseconds after its last request when a model is unloaded. Default never. */
  readonly unloadAfterMs?: number;
  /** Called before the engine of a model ends. */
  readonly onUnload?: (served: Served) => void;
  /** Called when an unload fails; no request waits for it. */
  readonly onError?: (error: unknown) => void;
}

/** Longest time that a timer takes. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** A model in use; it stays loaded until this is disposed. */
export interface Lease extends Disposable {
  /** The model. */
  readonly served: Served;
}

/** A model and what is known of it. */
interface Entry {
  /** The loaded model, or on the way. */
  opening?: Promise<Served>;
  /** The loaded model. */
  served?: Served | undefined;
  /** The end of its last unload, which may have failed. */
  closing: Promise<unknown>;
  leases: number;
  lastUsed: number;
  /** Milliseconds after its last request when it is unloaded; the requests may say. */
  keepAliveMs: number;
  /** When that is, in milliseconds since 1970, if no request comes. */
  expires: number;
  timer?: ReturnType<typeof setTimeout>;
}

/** The models that a server offers. */
export class Models extends ModelNames implements AsyncDisposable {
  readonly #entries: ReadonlyMap<string, Entry>;
  readonly #options: ModelsOptions;
  #uses = 0;
  /** The end of the last load that was asked for. */
  #loads: Promise<unknown> = Promise.resolve();

  /** Offers models by name; the first is the one of requests that name none. None is loaded yet. */
  constructor(ids: readonly string[], options: ModelsOptions) {
    super(ids);
    const { unloadAfterMs: keepAliveMs = Infinity } = options;
    this.#entries = new Map(
      ids.map((id) => [id, { closing: Promise.resolve(), leases: 0, lastUsed: 0, keepAliveMs, expires: Infinity }]),
    );
    this.#options = options;
  }

  /** The models that are loaded now. */
  get loaded(): readonly Served[] {
    return Array.from(this.#entries.values()).flatMap(({ served }) => served ?? []);
  }

  /** When a model is unloaded if no request comes, in milliseconds since 1970; Infinity if it stays or is in use. */
  expiresAt(id: string): number {
    return this.#entries.get(id)?.expires ?? Infinity;
  }

  /**
   * A model, loaded if it is not. Throws an ApiError if there is none of that name, or what its load throws. That is an LlmError with
   * code "memory" if it does not fit beside the models in use. `keepAliveMs` says how long it stays after its last request, from now on;
   * default as before.
   */
  async lease(id: string | undefined, keepAliveMs?: number): Promise<Lease> {
    const name = this.resolve(id);
    const entry = this.#entries.get(name)!;
    entry.leases++;
    entry.keepAliveMs = keepAliveMs ?? entry.keepAliveMs;
    entry.expires = Infinity;
    clearTimeout(entry.timer);
    if (entry.served?.engine.failure !== undefined) this.#replace(entry);
    try {
      entry.opening ??= this.#open(name, entry, this.#loads);
      const served = await entry.opening;
      return { served, [Symbol.dispose]: once(() => this.#release(entry)) };
    } catch (error) {
      entry.leases--;
      throw error;
    }
  }

  /** Ends what runs and frees all. Resolves when every request has been answered. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#loads;
    await Promise.all(Array.from(this.#entries.values(), (entry) => this.#unload(entry)));
  }

  /** Loads a model after those that were asked for before: each finds the memory that the others leave. */
  #open(id: string, entry: Entry, before: Promise<unknown>): Promise<Served> {
    const opening = before.then(() => this.#load(id)).then(
      (served) => entry.served = served,
      (error) => {
        delete entry.opening; // the next request tries again
        throw error;
      },
    );
    this.#loads = opening.catch(() => {});
    return opening;
  }

  /** Loads a model, which takes the place of idle ones if it does not fit. */
  async #load(id: string): Promise<Served> {
    for (;;) {
      await Promise.all(Array.from(this.#entries.values(), ({ closing }) => closing));
      try {
        return await this.#options.open(id, this.#room());
      } catch (error) {
        if (!(error instanceof lm.LlmError && error.code === "memory")) throw error;
        const idle = this.#longestIdle();
        if (idle === undefined) throw this.#besideBusy(error);
        await this.#unload(idle);
      }
    }
  }

  #room(): Room {
    const { memoryBytes = Infinity } = this.#options;
    const { loaded } = this;
    const used = loaded.reduce((sum, { bytes }) => sum + bytes, 0);
    return {
      bytes: Math.max(0, memoryBytes - used),
      models: this.#entries.size - loaded.length,
      isAll: loaded.length === 0,
    };
  }

  /** The error of a model that does not fit beside those in use. */
  #besideBusy(error: lm.LlmError): lm.LlmError {
    const busy = this.loaded.map(({ id }) => quoted(id)).join(", ");
    if (busy === "") return error;
    return new lm.LlmError("memory", `${error.message}, or try again when ${busy} answers no request`);
  }

  /** Unloads a model whose engine failed; it is loaded again. */
  #replace(entry: Entry): void {
    void this.#unload(entry).catch(this.#options.onError);
  }

  #longestIdle(): Entry | undefined {
    const idle = Array.from(this.#entries.values()).filter(({ served, leases }) => served && leases === 0);
    return idle.sort((a, b) => a.lastUsed - b.lastUsed)[0];
  }

  #release(entry: Entry): void {
    entry.lastUsed = ++this.#uses;
    if (--entry.leases > 0 || entry.keepAliveMs === Infinity) return;
    entry.expires = Date.now() + entry.keepAliveMs;
    const after = Math.min(entry.keepAliveMs, MAX_TIMER_MS);
    entry.timer = setTimeout(() => void this.#unload(entry).catch(this.#options.onError), after);
  }

  /** Unloads a model; requests that come meanwhile wait and load it again. */
  async #unload(entry: Entry): Promise<void> {
    clearTimeout(entry.timer);
    const { served } = entry;
    if (served === undefined) return;
    delete entry.opening;
    entry.served = undefined;
    const closing = this.#close(served);
    entry.closing = closing.catch(() => {});
    await closing;
  }

  /** Frees a model after its last request. */
  async #close(served: Served): Promise<void> {
    const { engine, model, draft } = served;
    await engine.drain();
    this.#options.onUnload?.(served);
    await engine[Symbol.asyncDispose]();
    draft?.[Symbol.dispose]();
    model[Symbol.dispose]();
    clearCache(); // the next model may need what the device would keep
  }
}

function once(work: () => void): () => void {
  let done = false;
  return () => {
    if (!done) work();
    done = true;
  };
}
