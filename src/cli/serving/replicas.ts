/**
 * `vkmx serve --replicas`: a front in this process, and a process for each replica.
 *
 * @module
 */

import { environment } from "../../../ffi/environment.ts";
import { VERSION } from "../../../ffi/version.ts";
import * as mx from "../../../mod.ts";
import { quoted } from "../../graph/error.ts";
import { Front } from "../../server/replicas/front.ts";
import type { LogEntry } from "../../server/server.ts";
import { useDevice } from "../device.ts";
import { UsageError } from "../flags.ts";
import { loadOptions } from "../loading.ts";
import { status } from "../output.ts";
import { describeModel, replicaValues, type ServeValues, servingOf } from "./flags.ts";
import { type Tell, tellError } from "./log.ts";
import { type Ready, spawnReplica } from "./spawn.ts";

/** Most replicas. */
const MOST = 64;
/** Most threads of the CPU device. */
const MOST_THREADS = 16;

/** A front that answers. */
export interface OpenFront {
  readonly front: Front;
  /** What the first replica said when it was ready. */
  readonly ready: Ready;
}

/** Starts the replicas and the front. Throws for flags that do not fit and for what does not start. */
export async function openFront(
  values: ServeValues,
  { tell, onRequest }: { readonly tell: Tell; readonly onRequest: (entry: LogEntry) => void },
): Promise<OpenFront> {
  const { models, ...address } = servingOf(values);
  const wanted = readReplicas(values.replicas!);
  if (values.split !== undefined) {
    throw new UsageError("--split and --replicas exclude each other: a replica has one device");
  }
  await useDevice(values.device, { json: values.json, quiet: true });
  const name = values.device ?? environment("VKMX_DEVICE");
  const devices = replicaDevices(wanted, candidateDevices(name, mx.devices, mx.deviceInfo));
  for (const [device, count] of countsOf(devices)) {
    if (count > 1) tell("shared", { device, replicas: count }, `${count} replicas share ${device}`);
  }
  await download([[...models.values()][0], values["draft-model"]], values.json ?? false);
  if (!values.json) status(`Starting ${devices.length} replicas`);
  const key = crypto.randomUUID(); // no other program may ask the replicas
  const ready: Ready[] = [];
  const front = await Front.start({
    ...address,
    version: VERSION,
    models: [...models.keys()],
    describe: (id) => describeModel(models.get(id)!),
    count: devices.length,
    start: async (replica, signal) => {
      const device = devices[replica];
      const sharers = countsOf(devices).get(device)!;
      const process = await spawnReplica({
        replica,
        key,
        options: {
          values: { ...replicaValues(values), device, json: true, port: 0, "api-key": key },
          sharers,
          replicas: devices.length,
          memoryBytes: ready[replica]?.memoryBytes, // others have taken theirs since it was measured
        },
        env: device === "wasm" ? threadsFor(sharers) : {},
        tell,
        signal,
      });
      ready[replica] = process.ready;
      return process;
    },
    onEvent: ({ replica, event, message }) =>
      tell("replica", { replica, state: event, message }, `replica ${replica}: ${message}`),
    onRequest,
    onError: (error) => tellError(tell, error),
  });
  return { front, ready: ready[0] };
}

/** Downloads what the replicas load first, so that its progress is seen and each of them finds it. */
async function download(sources: readonly (string | URL | undefined)[], json: boolean): Promise<void> {
  const { onDownload } = loadOptions(undefined);
  for (const source of sources) {
    if (typeof source !== "string") continue;
    await mx.lm.hub.locate(source, { ...(!json && onDownload && { onProgress: onDownload }) });
  }
}

/** The number of replicas that --replicas asks for. Throws a {@link UsageError} for another text. */
function readReplicas(text: string): number | "auto" {
  if (text === "auto") return text;
  const count = /^\d+$/.test(text) ? Number(text) : 0;
  if (count >= 1 && count <= MOST) return count;
  throw new UsageError(`--replicas is ${quoted(text)}, expected auto or a whole number from 1 to ${MOST}`);
}

/** Devices for replicas: those that are named, else all of the default device's kind. Without a name or by "gpu" that is the best one. */
export function candidateDevices(
  name: string | undefined,
  devices: () => readonly mx.DeviceInfo[],
  infoOf: (name?: string) => mx.DeviceInfo,
): readonly string[] {
  if (name !== undefined && name !== "gpu") return name.split(",").map((one) => one === "cpu" ? "wasm" : one);
  const best = infoOf(name);
  return devices().filter(({ type, usable }) => usable && type === best.type).map((device) => device.name);
}

/** The device of each replica: one each, or in turn where there are fewer devices. */
export function replicaDevices(wanted: number | "auto", devices: readonly string[]): readonly string[] {
  const count = wanted === "auto" ? devices.length : wanted;
  return Array.from({ length: count }, (_, i) => devices[i % devices.length]);
}

function countsOf(devices: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const device of devices) counts.set(device, (counts.get(device) ?? 0) + 1);
  return counts;
}

/** The threads of each of several processes on the CPU: as many in all as one would have. */
function threadsFor(sharers: number): Readonly<Record<string, string>> {
  if (environment("VKMX_THREADS") !== undefined) return {};
  const all = Math.min(navigator.hardwareConcurrency, MOST_THREADS);
  return { VKMX_THREADS: String(Math.max(1, Math.floor(all / sharers))) };
}
