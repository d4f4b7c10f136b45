/**
 * Devices that say they have memory besides that of the host: software Vulkan has none.
 *
 * @module
 */

import type { MemoryInfo } from "../../../src/backend/backend.ts";
import { getBackend } from "../../../src/backend/devices.ts";

/** Until it is disposed of, a device reports what `fake` makes of its counters. */
export function withMemory(device: string, fake: (real: MemoryInfo) => Partial<MemoryInfo>): Disposable {
  const backend = getBackend(device);
  const before = Object.getOwnPropertyDescriptor(backend, "memory"); // one within another
  const real = backend.memory.bind(backend);
  Object.defineProperty(backend, "memory", {
    configurable: true,
    value: (): MemoryInfo => {
      const counters = real();
      return { ...counters, ...fake(counters) };
    },
  });
  return {
    [Symbol.dispose]: () => {
      if (before) Object.defineProperty(backend, "memory", before);
      else Reflect.deleteProperty(backend, "memory");
    },
  };
}

/** Counters of a device whose host has so many free bytes besides. */
export function hostMemoryOf(free: number): Pick<MemoryInfo, "hostAvailable" | "hostTotal"> {
  return { hostAvailable: free, hostTotal: 1e12 };
}
