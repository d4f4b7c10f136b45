/**
 * Streams: several lines of work on one device, and the devices that they are on.
 *
 * An op runs on the stream in whose scope it was called, at whatever time; the scope stands for MLX's `stream` argument.
 * Outside of scopes work runs on the default stream of the device where its arrays lie. Streams of a GPU run beside one another. If one
 * reads what another writes, it waits on the device; the host waits for none. On the CPU they run in the order of submission.
 *
 * A device tells four streams apart, the default one and three others; of more, some share one.
 *
 * @module
 */

import {
  countDevices,
  defaultDevice,
  deviceAt,
  type DeviceInfo,
  deviceInfo as infoOf,
  exchangeDefault,
  openBackends,
  placeOfDevice,
  RuntimeError,
  setDefaultDevice as chooseDevice,
  withDevice as runWithDevice,
} from "../backend/devices.ts";
import { quoted, ValueError } from "../graph/error.ts";
import { enterStream, scopeStream } from "../graph/stream.ts";

/** Kinds of devices, as MLX has them: "cpu" is the WASM device, "gpu" the best GPU. */
export type DeviceType = "cpu" | "gpu";

/** The CPU, wherever a device is asked for. */
export const cpu = "cpu" satisfies DeviceType;
/** The best GPU, wherever a device is asked for. */
export const gpu = "gpu" satisfies DeviceType;
/** Kinds of devices by name. */
export const DeviceType: Readonly<Record<DeviceType, DeviceType>> = { cpu, gpu };

/**
 * A device by its kind and number, as in MLX. Names such as "wasm" and "vulkan:0" mean the same.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const device = new mx.Device(mx.cpu);
 * device.name; // "wasm"
 * ```
 */
export class Device {
  /** Kind. */
  readonly type: DeviceType;
  /** Number among the devices of its kind, the best first. */
  readonly index: number;

  /** The device of a kind, the first one unless numbered. It is looked for when it is used. */
  constructor(type: DeviceType | Device, index: number = 0) {
    this.type = type instanceof Device ? type.type : type;
    this.index = type instanceof Device ? type.index : index;
    if (!(this.type in DeviceType)) {
      throw new ValueError(`Device() expected "cpu" or "gpu": found ${quoted(this.type)}`);
    }
    if (!Number.isInteger(index) || index < 0) {
      throw new ValueError(`Device() expected a number from 0 on: found ${index}`);
    }
  }

  /** Its name, such as "wasm" or "vulkan:0"; throws a RuntimeError if it is not there. */
  get name(): string {
    return deviceAt(this, "Device");
  }

  /** Whether `other` is the same device; a kind is the first device of it. */
  equals(other: DeviceLike): boolean {
    const { type, index } = deviceOf(other, "Device");
    return type === this.type && index === this.index;
  }

  /** As MLX prints it. */
  toString(): string {
    return `Device(${this.type}, ${this.index})`;
  }
}

/** A device: its kind, its name, or a {@link Device}. */
export type DeviceLike = DeviceType | Device | string;

function deviceOf(device: DeviceLike, call: string): Device {
  if (device instanceof Device) return device;
  const { type, index } = placeOfDevice(device, call);
  return new Device(type, index);
}

/** The name that a device is selected by. */
function nameOf(device: DeviceLike | undefined, call: string): string {
  if (device === undefined) return defaultDevice();
  return device instanceof Device ? deviceAt(device, call) : placeOfDevice(device, call).name;
}

/**
 * A line of work on a device: made by {@link newStream} and {@link defaultStream}. The same stream is the same object.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const side = mx.newStream("wasm");
 * const y = mx.stream(side, () => mx.exp(mx.ones([2])));
 * mx.eval(y);
 * ```
 */
export class Stream {
  /** Name of the device. */
  readonly deviceName: string;
  /** Number among the streams of the device; 0 is the default stream unless another was chosen. */
  readonly index: number;

  /** Stream `index` of a device. Programs call {@link newStream}. */
  constructor(index: number, device: DeviceLike) {
    this.index = index;
    this.deviceName = nameOf(device, "Stream");
  }

  /** Its device. */
  get device(): Device {
    return deviceOf(this.deviceName, "Stream");
  }

  /** Whether `other` is the same stream. */
  equals(other: unknown): boolean {
    return other instanceof Stream && other.deviceName === this.deviceName && other.index === this.index;
  }

  /** As MLX prints it. */
  toString(): string {
    return `Stream(${this.device}, ${this.index})`;
  }
}

/** Streams of each device by their numbers, and the default ones if those were chosen. */
const streams = new Map<string, Stream[]>();
const defaults = new Map<string, Stream>();

function streamsOf(name: string): Stream[] {
  let list = streams.get(name);
  if (!list) streams.set(name, list = [new Stream(0, name)]);
  return list;
}

/** The default stream of a device; without an argument, of the default device. */
export function defaultStream(device?: DeviceLike): Stream {
  const name = nameOf(device, "defaultStream");
  const current = scopeStream();
  if (current?.deviceName === name) return current as Stream;
  return defaults.get(name) ?? streamsOf(name)[0];
}

/** Makes a stream the default one of its device, for all that is called from now on outside of other scopes. */
export function setDefaultStream(stream: Stream): void {
  checkStream(stream, "setDefaultStream");
  defaults.set(stream.deviceName, stream);
  const current = scopeStream();
  const here = current?.deviceName ?? defaultDevice();
  if (here === stream.deviceName) enterStream(stream.index === 0 && !current ? undefined : stream);
}

/** A new stream of a device; without an argument, of the default device. */
export function newStream(device?: DeviceLike): Stream {
  const name = nameOf(device, "newStream");
  const list = streamsOf(name);
  const stream = new Stream(list.length, name);
  list.push(stream);
  return stream;
}

/** The same as {@link newStream}: a worker has its own module, so that every stream is of one thread. */
export function newThreadLocalStream(device?: DeviceLike): Stream {
  return newStream(device);
}

/** The same as {@link newStream}. */
export function newThreadUnsafeStream(device?: DeviceLike): Stream {
  return newStream(device);
}

/** Waits for the work on all streams and forgets those that {@link newStream} made; the default streams stay. */
export function clearStreams(): void {
  for (const backend of openBackends()) backend.synchronize();
  for (const list of streams.values()) list.length = 1;
  defaults.clear();
  const current = scopeStream();
  if (current && current.index > 0) enterStream(undefined);
}

function checkStream(stream: unknown, call: string): asserts stream is Stream {
  if (!(stream instanceof Stream)) throw new ValueError(`${call}() expected a stream`);
}

/** The end of a scope that {@link stream} opened. */
export interface StreamScope extends Disposable {
  /** The stream of the scope. */
  readonly stream: Stream;
}

/**
 * A scope in which ops belong to a stream, or to the default stream of a device, which is then the default device. It lasts until it is
 * disposed of, or while `fn` runs: up to the first `await` of an asynchronous one. Arrays of other devices that such an op reads are copied
 * over.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const x = mx.ones([4]);
 * const y = mx.stream(mx.cpu, () => mx.exp(x)); // on the CPU, wherever x is
 * {
 *   using _ = mx.stream(mx.newStream(mx.cpu));
 *   mx.eval(mx.add(y, 1));
 * }
 * ```
 */
export function stream(streamOrDevice: Stream | DeviceLike): StreamScope;
/** The same while `fn` runs; gives what that does. */
export function stream<T>(streamOrDevice: Stream | DeviceLike, fn: () => T): T;
export function stream<T>(streamOrDevice: Stream | DeviceLike, fn?: () => T): T | StreamScope {
  const scope = open(streamOrDevice);
  if (!fn) return scope;
  try {
    return fn();
  } finally {
    scope[Symbol.dispose]();
  }
}

function open(where: Stream | DeviceLike): StreamScope {
  const entered = where instanceof Stream ? where : defaultStream(where);
  const stream = enterStream(entered);
  const device = exchangeDefault(entered.deviceName);
  let closed = false;
  return {
    stream: entered,
    [Symbol.dispose]: (): void => {
      if (closed) return;
      closed = true;
      enterStream(stream);
      exchangeDefault(device);
    },
  };
}

/** Waits until the work submitted on a stream is done, on all streams of a device, or of the default device. */
export function synchronize(streamOrDevice?: Stream | DeviceLike): void {
  const one = streamOrDevice instanceof Stream;
  const name = one ? streamOrDevice.deviceName : nameOf(streamOrDevice, "synchronize");
  const backend = openBackends().find((backend) => backend.name === name);
  backend?.synchronize(one ? streamOrDevice.index : undefined);
}

/** Chooses the device that work goes to from now on, by name or kind. Arrays stay where they are; a chosen default stream of it applies. */
export function setDefaultDevice(device: DeviceLike): void {
  chooseDevice(device instanceof Device ? device.name : device);
  enterStream(defaults.get(defaultDevice()));
}

/** Runs `fn` with another default device; undefined keeps the default. It is the old one again when `fn` returns. */
export function withDevice<T>(device: DeviceLike | undefined, fn: () => T): T {
  if (device === undefined) return fn();
  const name = nameOf(device, "withDevice");
  const current = scopeStream();
  const before = current && current.deviceName !== name ? enterStream(defaults.get(name)) : current;
  try {
    return runWithDevice(name, fn);
  } finally {
    enterStream(before);
  }
}

/** Whether a device is there and usable. */
export function isAvailable(device: DeviceLike): boolean {
  try {
    nameOf(device, "isAvailable");
    return true;
  } catch (error) {
    if (error instanceof RuntimeError) return false;
    throw error;
  }
}

/** How many usable devices there are of a kind. */
export function deviceCount(type: DeviceType | Device): number {
  return countDevices(new Device(type).type);
}

/** The description of a device: {@link DeviceInfo}, with the names that MLX gives. */
export interface DeviceFacts extends DeviceInfo {
  /** Device, driver and version. */
  readonly deviceName: string;
  /** Kind of device. */
  readonly architecture: string;
}

/** Facts about a device, by default the default one; opens nothing. Throws a RuntimeError if it is not there. */
export function deviceInfo(device?: DeviceLike): DeviceFacts {
  const info = infoOf(device instanceof Device ? device.name : device ?? defaultDevice());
  return { ...info, deviceName: info.description, architecture: info.type };
}
