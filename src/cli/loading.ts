/**
 * The model of --model on the device of --device, with progress on stderr.
 *
 * @module
 */

import type { lm } from "../../mod.ts";
import { note } from "./output.ts";
import { BYTES, Progress } from "./progress.ts";

/** Options of loading: the device, the display of progress, the signal. */
export function loadOptions(device: string | undefined, signal?: AbortSignal): lm.LoadOptions {
  const download = new Progress("Downloading", { unit: BYTES });
  const load = new Progress("Loading", { unit: BYTES });
  return {
    ...(device !== undefined && { device }),
    ...(signal && { signal }),
    onDownload: (at) => download.update(at.bytesDone, at.bytesTotal, at),
    onNote: (line) => note(`${line}\n`),
    onProgress: (done, total) => load.update(done, total),
  };
}

/** Aborts on the first Ctrl-C, so that the line and the figures are finished; the second one ends the process. */
export function onInterrupt(): AbortSignal {
  const controller = new AbortController();
  Deno.addSignalListener("SIGINT", () => {
    if (controller.signal.aborted) Deno.exit(130);
    controller.abort();
  });
  return controller.signal;
}
