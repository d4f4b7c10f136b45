/**
 * The progress of a download: bytes by file and in all, the rate of the last seconds, and the time left at that rate.
 *
 * @module
 */

/** How far one file is. */
export interface FileProgress {
  /** Its name in the model. */
  readonly name: string;
  /** Bytes that are on the disk. */
  readonly bytesDone: number;
  /** Bytes that it has. */
  readonly bytesTotal: number;
}

/** How far a download is. */
export interface DownloadProgress {
  /** Bytes of all files that are on the disk, also those that were there before. */
  readonly bytesDone: number;
  /** Bytes of all files. */
  readonly bytesTotal: number;
  /** Bytes that came by the network. */
  readonly bytesReceived: number;
  /** Bytes per second over the last seconds; 0 while nothing came. */
  readonly rate: number;
  /** Seconds left at that rate; undefined while there is none. */
  readonly secondsLeft: number | undefined;
  /** Every file. */
  readonly files: readonly FileProgress[];
}

/** Called ten times a second, and at the start and the end. */
export type OnDownload = (progress: DownloadProgress) => void;

/** Time between two calls. */
export const INTERVAL_MS = 100;
const WINDOW_MS = 5000;

/** Counts the bytes of a download. */
export class Meter {
  readonly #files: Map<string, { readonly name: string; bytesDone: number; readonly bytesTotal: number }>;
  readonly #tell: OnDownload | undefined;
  readonly #now: () => number;
  readonly #start: number;
  #received = 0;
  /** Bytes that came and when, of the last seconds. */
  #window: { readonly at: number; bytes: number }[] = [];

  /** Starts at nothing. `now` is a clock in milliseconds. */
  constructor(
    files: readonly { readonly name: string; readonly size: number }[],
    tell: OnDownload | undefined,
    now: () => number = () => performance.now(),
  ) {
    this.#files = new Map(files.map(({ name, size }) => [name, { name, bytesDone: 0, bytesTotal: size }]));
    this.#tell = tell;
    this.#now = now;
    this.#start = now();
  }

  /** A file has so many bytes now; `came` of them by the network since the last call. */
  set(name: string, bytesDone: number, came = 0): void {
    this.#files.get(name)!.bytesDone = bytesDone;
    const at = this.#now();
    if (came > 0) this.#count(at, came);
    this.#received += came;
  }

  /** Tells now. */
  tell(): void {
    if (this.#tell === undefined) return;
    const at = this.#now();
    const files = Array.from(this.#files.values(), (file) => ({ ...file }));
    const sum = (key: "bytesDone" | "bytesTotal"): number => files.reduce((total, file) => total + file[key], 0);
    const [bytesDone, bytesTotal] = [sum("bytesDone"), sum("bytesTotal")];
    const rate = this.#rate(at);
    const secondsLeft = bytesDone === bytesTotal ? 0 : rate > 0 ? (bytesTotal - bytesDone) / rate : undefined;
    this.#tell({ bytesDone, bytesTotal, bytesReceived: this.#received, rate, secondsLeft, files });
  }

  #count(at: number, bytes: number): void {
    const last = this.#window.at(-1);
    if (last !== undefined && at - last.at < INTERVAL_MS) last.bytes += bytes;
    else this.#window.push({ at, bytes });
    this.#window = this.#window.filter((entry) => at - entry.at <= WINDOW_MS);
  }

  #rate(at: number): number {
    const recent = this.#window.filter((entry) => at - entry.at <= WINDOW_MS);
    const bytes = recent.reduce((total, entry) => total + entry.bytes, 0);
    return bytes * 1000 / Math.min(WINDOW_MS, Math.max(INTERVAL_MS, at - this.#start));
  }
}
