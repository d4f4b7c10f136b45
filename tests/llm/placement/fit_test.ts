/**
 * Which experts stay in host memory, without a device.
 */

import { assertEquals } from "@std/assert";
import { type Fit, type FitBytes, type FitRoom, fitWeights, layersText } from "../../../src/llm/placement/fit.ts";

/** Four layers, of which the second has no experts: 100 bytes of them, 20 of other weights, and 5 of a cache. */
const MODEL: FitBytes = { experts: [30, 0, 30, 40], others: 20, cache: 5 };

const CASES: readonly (readonly [string, Partial<FitBytes>, FitRoom, Fit])[] = [
  ["all fit", {}, { device: 125, host: 1000 }, { hostLayers: [], hostBytes: 0 }],
  ["a byte less: weights get three quarters of 124", {}, { device: 124, host: 1000 }, {
    hostLayers: [3],
    hostBytes: 40,
  }],
  ["half", {}, { device: 68, host: 1000 }, { hostLayers: [2, 3], hostBytes: 70 }],
  ["none of the experts", {}, { device: 40, host: 1000 }, { hostLayers: [0, 2, 3], hostBytes: 100 }],
  ["what is no expert fits just so", {}, { device: 25, host: 1000 }, { hostLayers: [0, 2, 3], hostBytes: 100 }],
  ["what is no expert does not fit", {}, { device: 24, host: 1000 }, {
    hostLayers: [0, 2, 3],
    hostBytes: 100,
    lacks: "device",
  }],
  ["three quarters of the host's memory", {}, { device: 68, host: 94 }, { hostLayers: [2, 3], hostBytes: 70 }],
  ["the host has too little", {}, { device: 68, host: 93 }, { hostLayers: [2, 3], hostBytes: 70, lacks: "host" }],
  ["the host has no memory left", {}, { device: 68, host: 0 }, { hostLayers: [2, 3], hostBytes: 70, lacks: "host" }],
  ["a limit while the host has no memory left", {}, { device: 1000, host: 0, weightBytes: 80 }, {
    hostLayers: [3],
    hostBytes: 40,
    lacks: "host",
  }],
  ["a cache of more than a quarter", { experts: [30, 30], others: 10, cache: 40 }, { device: 100, host: 1000 }, {
    hostLayers: [1],
    hostBytes: 30,
  }],
  ["one memory: all or nothing", {}, { device: 124, host: undefined }, {
    hostLayers: [],
    hostBytes: 0,
    lacks: "device",
  }],
  ["a limit though all fit", {}, { device: 1000, host: 1000, weightBytes: 90 }, { hostLayers: [3], hostBytes: 40 }],
  ["a limit that is just kept", {}, { device: 1000, host: 1000, weightBytes: 80 }, { hostLayers: [3], hostBytes: 40 }],
  ["a limit of all weights", {}, { device: 1000, host: 1000, weightBytes: 120 }, { hostLayers: [], hostBytes: 0 }],
  ["a limit in one memory", {}, { device: 125, host: undefined, weightBytes: 79 }, {
    hostLayers: [2, 3],
    hostBytes: 70,
  }],
  ["a limit in one memory that is too small", {}, { device: 124, host: undefined, weightBytes: 79 }, {
    hostLayers: [2, 3],
    hostBytes: 70,
    lacks: "device",
  }],
  ["a limit below what is no expert", {}, { device: 1000, host: 1000, weightBytes: 19 }, {
    hostLayers: [0, 2, 3],
    hostBytes: 100,
    lacks: "limit",
  }],
  ["a limit above what is free", {}, { device: 100, host: 1000, weightBytes: Infinity }, {
    hostLayers: [],
    hostBytes: 0,
    lacks: "device",
  }],
  ["no experts", { experts: [0, 0], others: 90 }, { device: 60, host: 1000 }, {
    hostLayers: [],
    hostBytes: 0,
    lacks: "device",
  }],
];

for (const [name, bytes, room, wanted] of CASES) {
  Deno.test(`experts in host memory: ${name}`, () => assertEquals(fitWeights({ ...MODEL, ...bytes }, room), wanted));
}

Deno.test("runs of layers are named by their ends", () => {
  assertEquals(layersText([7]), "layer 7");
  assertEquals(layersText([0, 1, 2, 5, 7, 8]), "layers 0 to 2, 5, 7 to 8");
});
