/**
 * A server in this process, with its models on its device or devices.
 *
 * @module
 */

import { VERSION } from "../../../ffi/version.ts";
import { type DeviceMemory, deviceMemory, withDevice } from "../../../mod.ts";
import { openModel } from "../../server/open.ts";
import { type LogEntry, Server } from "../../server/server.ts";
import { useDevice } from "../device.ts";
import { describeDevice, loadOptions } from "../loading.ts";
import { describeTools, openMcp } from "../mcp.ts";
import { draftHeadOf, placeOf, speculationOf } from "../model_flags.ts";
import { describeModel, engineOptions, type ServeValues, servingOf } from "./flags.ts";
import { type Tell, tellError } from "./log.ts";

/** A server that answers. */
export interface OneServer {
  readonly server: Server;
  readonly device: string;
  /** Bytes of the device that its models may take. */
  readonly memoryBytes: number;
  /** Tools of MCP servers, as "server.tool", and a line about them; undefined without --mcp. */
  readonly tools: { readonly names: readonly string[]; readonly line: string } | undefined;
  /** Answers the requests that are there, and frees all. */
  drain(): Promise<void>;
}

/** How a server of several on a machine differs. */
export interface OneServerOptions {
  /** Says what happens. */
  readonly tell: Tell;
  /** Called after each request. */
  readonly onRequest?: (entry: LogEntry) => void;
  /** How many servers share the memory that the device has free now. Default this one alone. */
  readonly sharers?: number;
  /** How many servers share the memory that the host has free now. Default this one alone. */
  readonly replicas?: number;
  /** Bytes of the device that its models may take, default those that are free. */
  readonly memoryBytes?: number | undefined;
}

/** Loads the first model and serves. Throws for flags that do not fit and for what cannot be opened. */
export async function openServer(
  values: ServeValues,
  { tell, onRequest, sharers = 1, replicas = 1, ...options }: OneServerOptions,
): Promise<OneServer> {
  const { device, json = false, "unload-after": unloadAfter, "kv-bytes": kvBytes } = values;
  const { models, ...address } = servingOf(values);
  await using cleanup = new AsyncDisposableStack();
  const mcp = await openMcp(values, { warn: (message) => tell("warning", { message }, `warning: ${message}`) });
  if (mcp !== undefined) cleanup.use(mcp);
  const place = placeOf(values);
  await useDevice(device, { json, quiet: json });
  const memories = (): DeviceMemory[] => (place.devices ?? [device]).map((name) => withDevice(name, deviceMemory));
  const free = memories().reduce((sum, { available }) => sum + available, 0);
  const hostShare = Math.floor(Math.max(...memories().map(({ hostAvailable }) => hostAvailable)) / replicas);
  const { memoryBytes = Math.floor(free / sharers) } = options;
  const onNote = (message: string): void => tell("warning", { message }, message);
  let deviceName = "";
  const server = await Server.start({
    ...address,
    version: VERSION,
    models: [...models.keys()],
    mcp,
    unloadAfterMs: unloadAfter === undefined ? undefined : 1000 * unloadAfter,
    memoryBytes,
    open: async (id, room) => {
      const hostActive = memories().reduce((sum, { hostActive }) => sum + hostActive, 0); // of models that are loaded
      const hostMemoryBytes = Math.max(0, hostShare - hostActive);
      const opened = await openModel(id, models.get(id)!, room, {
        load: {
          ...(json ? { ...place, onNote } : loadOptions(place)),
          ...(replicas > 1 && { hostMemoryBytes }),
          ...draftHeadOf(values),
        },
        engine: engineOptions(values),
        draft: values["draft-model"],
        speculation: (draft) => speculationOf(values, draft),
        kvBytes: kvBytes && Math.floor(kvBytes / models.size),
      });
      deviceName = describeDevice(opened);
      return opened;
    },
    describe: (id) => describeModel(models.get(id)!),
    ...(onRequest && { onRequest }),
    onError: (error) => tellError(tell, error),
  });
  const owned = cleanup.move();
  owned.defer(() => server.drain());
  return {
    server,
    device: deviceName,
    memoryBytes,
    tools: mcp && {
      names: mcp.tools.tools.map(({ server, tool }) => `${server}.${tool}`),
      line: `its page offers ${describeTools(mcp.tools)}`,
    },
    drain: () => owned.disposeAsync(),
  };
}
