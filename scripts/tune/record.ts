/**
 * A measured record as TypeScript, ready to be a file of src/schedule/tuning.
 *
 * @module
 */

import type { Tuning } from "../../src/schedule/tuning/tuning.ts";
import type { BackendLimits } from "../../src/backend/backend.ts";
import type { MeasuredCost, MeasuredCuts } from "./products.ts";

/** The measurements of a device. */
export interface Measured {
  /** Name, driver and version. */
  readonly description: string;
  readonly limits: Pick<BackendLimits, "type" | "vendorId" | "computeUnits">;
  /** Day of the measurement, as 2026-01-31. */
  readonly date: string;
  readonly costs: readonly MeasuredCost[];
  readonly cuts: MeasuredCuts;
  readonly decode: Pick<Tuning["decode"], "gemvMinHidden" | "batchMinSequences">;
  /** GB/s of a copy, read and written. */
  readonly copy: number | undefined;
}

/** A value as the source that gives it, fractions to three digits. */
function literal(value: unknown): string {
  if (typeof value === "number") return String(Number.isInteger(value) ? value : Number(value.toPrecision(3)));
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{ ${Object.entries(value).map(([key, item]) => `${key}: ${literal(item)}`).join(", ")} }`;
}

/** Where the record of a device's class comes from. */
function baseOf(
  { type, computeUnits }: Measured["limits"],
): { readonly name: string; readonly file: string; readonly value: string } {
  if (type === "cpu") return { name: "SOFTWARE", file: "cpu.ts", value: "SOFTWARE" };
  const [name, file] = type === "integrated" ? ["tuneIntegrated", "integrated.ts"] : ["tuneDiscrete", "discrete.ts"];
  return { name, file, value: `${name}(${computeUnits})` };
}

/** The name of a record's constant, such as RTX_4090. */
function constantOf(name: string): string {
  const words = name.toUpperCase().replaceAll(/[^A-Z0-9]+/g, "_").replaceAll(/^_|_$/g, "");
  return /^\d/.test(words) ? `GPU_${words}` : words;
}

/** The file of a record, and the entry of choose.ts that takes it. */
export function recordSource({ description, limits, date, costs, cuts, decode, copy }: Measured): string {
  const name = description.replace(/ \(.*$/, "");
  const base = baseOf(limits);
  const rate = copy === undefined ? "" : `\n    partsBytesPerUs: ${literal(Math.round(1000 * copy))},`;
  const rows = costs.map(({ kernel, cost }) => `\n      ${kernel}: ${literal(cost)},`).join("");
  const measured = rows && `\n    costs: {\n      ...BASE.quantizedProducts.costs,${rows}\n    },`;
  const most = cuts.maxRows === undefined ? "" : `\n  fewRows: { ...BASE.fewRows, maxRows: ${cuts.maxRows} },`;
  return `/**
 * ${description}.
 * Measured with \`deno task tune\` on ${date}; other values are those of its class.
 *
 * @module
 */

import { ${base.name} } from "./${base.file}";
import type { Tuning } from "./tuning.ts";

const BASE = ${base.value};

/** The record of ${name}. */
export const ${constantOf(name)}: Tuning = {
  ...BASE,
  name: ${JSON.stringify(name)},
  quantizedProducts: {
    ...BASE.quantizedProducts,${rate}${measured}
  },
  tiles: { targetWorkgroups: ${cuts.targetWorkgroups} },${most}
  decode: {
    ...BASE.decode,
    gemvMinHidden: ${literal(decode.gemvMinHidden)},
    batchMinSequences: ${literal(decode.batchMinSequences)},
  },
};

// In choose.ts, before the entry of its class:
//   {
//     when: ({ limits }) => limits.vendorId === ${limits.vendorId} && limits.computeUnits === ${limits.computeUnits} && limits.type === "${limits.type}",
//     tune: () => ${constantOf(name)},
//   },
`;
}
