/**
 * The model of --model on the device of --device, with progress on stderr.
 *
 * @module
 */

import type { lm } from "../../mod.ts";
import type { ModelPlace } from "./model_flags.ts";
import { note } from "./output.ts";
import { BYTES, Progress } from "./progress.ts";

/** Options of loading: where the weights go, the display of progress, the signal. */
export function loadOptions(
  where: string | undefined | ModelPlace,
  signal?: AbortSignal,
): lm.LoadOptions {
  const download = new Progress("Downloading", { unit: BYTES });
  const load = new Progress("Loading", { unit: BYTES });
  return {
    ...(typeof where === "string" ? { device: where } : where),
    ...(signal && { signal }),
    onDownload: (at) => download.update(at.bytesDone, at.bytesTotal, at),
    onNote: (line) => note(`${line}\n`),
    onProgress: (done, total) => load.update(done, total),
  };
}

/** Names the devices of a model, with the layers of each where they are on several. */
export function describeDevice({ device, parts }: Pick<lm.Loaded, "device" | "parts">): string {
  const layersOf = ({ device, from, to }: lm.ModelPart): string =>
    `${device} (${to - from === 1 ? `layer ${from}` : `layers ${from}-${to - 1}`})`;
  return parts.length === 0 ? device : parts.map(layersOf).join(", ");
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
