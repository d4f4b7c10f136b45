/**
 * Which rows a decode step gets while pipelines are made: no device is needed, since traces here are names.
 */

import { assertEquals } from "@std/assert";
import { TracedStep } from "../../../src/array/compile/loop.ts";
import { type NeededRows, ReadyRows, type RowMaker } from "../../../src/llm/engine/steps/ready_rows.ts";
import type { DeviceRows } from "../../../src/llm/engine/steps/rows.ts";

const KIND = { draws: false, penalties: false, recent: 0, bias: 0, logprobs: -1 } as unknown as NeededRows["kind"];
const rowsOf = (rows: number, columns = 4): NeededRows => ({ rows, columns, kind: KIND, masked: undefined });

/** A context whose pipelines are made when the test says so. */
function contextOf(tiled: boolean): {
  readonly context: RowMaker;
  /** Ends the making of pipelines; returns the names of the traces that had none. */
  readonly make: () => Promise<readonly string[]>;
  /** Lets all traces go. */
  readonly forget: () => void;
} {
  const made = new Set<TracedStep<unknown>>();
  const traces = new Map<string, TracedStep<unknown>>();
  const making: { readonly name: string; readonly done: () => void }[] = [];
  const trace = (name: string): TracedStep<unknown> => {
    const known = traces.get(name);
    if (known) return known;
    const step: TracedStep<unknown> = Object.create(TracedStep.prototype, {
      ready: { get: () => made.has(step) },
      name: { value: name },
    });
    traces.set(name, step);
    return step;
  };
  const model = {
    device: { tiled },
    traces: {
      trace,
      known: (name: string) => traces.get(name),
      prepare: (step: TracedStep<unknown> & { readonly name: string }) =>
        new Promise<void>((resolve) => {
          const done = (): void => {
            made.add(step);
            resolve();
          };
          making.push({ name: step.name, done });
        }),
    },
  };
  const newRows = (sizes: NeededRows): DeviceRows => ({ sizes, [Symbol.dispose]: () => {} }) as unknown as DeviceRows;
  return {
    context: { model, newRows } as unknown as RowMaker,
    make: async () => {
      const names = making.map(({ name }) => name);
      for (const { done } of making.splice(0)) done();
      await new Promise((resolve) => setTimeout(resolve));
      return names;
    },
    forget: () => traces.clear(),
  };
}

function readyRows(context: RowMaker): ReadyRows<undefined> {
  return new ReadyRows(context, ({ sizes: { rows, columns } }) => (
    { name: `${rows} x ${columns}`, state: undefined, step: (state) => state }
  ));
}

Deno.test("steps of fewer sequences go on with the rows there are until the pipelines of others are made", async () => {
  const { context, make } = contextOf(true);
  const ready = readyRows(context);
  assertEquals(ready.sizesFor(rowsOf(64)), rowsOf(64)); // the first ones wait for theirs
  assertEquals(ready.serves(rowsOf(64), rowsOf(32)), true); // half as many are worth no others
  assertEquals(ready.serves(rowsOf(64), rowsOf(16)), true);
  assertEquals(ready.serves(rowsOf(64), rowsOf(8)), true); // one after the other
  assertEquals(await make(), ["16 x 4"]);
  assertEquals(ready.serves(rowsOf(64), rowsOf(16)), false);
  assertEquals(ready.sizesFor(rowsOf(16)), rowsOf(16));
  assertEquals(ready.serves(rowsOf(16), rowsOf(32)), false); // too few
});

Deno.test("new rows are larger ones that ran before, the smallest of them, while those that are needed have no pipelines", async () => {
  const { context, make } = contextOf(true);
  const ready = readyRows(context);
  for (const sizes of [rowsOf(64, 32), rowsOf(32, 32), rowsOf(32, 4)]) {
    ready.serves(rowsOf(256, 64), sizes);
    await make();
    ready.sizesFor(sizes);
  }
  assertEquals(ready.sizesFor(rowsOf(8, 16)), rowsOf(32, 32));
  assertEquals(ready.sizesFor(rowsOf(128, 16)), rowsOf(128, 16)); // none is large enough
  await make();
  assertEquals(ready.sizesFor(rowsOf(8, 16)), rowsOf(8, 16));
});

Deno.test("rows whose trace has gone serve no others: they would wait too", async () => {
  const { context, make, forget } = contextOf(true);
  const ready = readyRows(context);
  ready.serves(rowsOf(256, 64), rowsOf(64));
  await make();
  assertEquals(ready.sizesFor(rowsOf(64)), rowsOf(64));
  assertEquals(ready.sizesFor(rowsOf(8)), rowsOf(64));
  await make();
  forget();
  assertEquals(ready.sizesFor(rowsOf(16)), rowsOf(16));
  assertEquals(await make(), ["16 x 4"]);
  forget();
  assertEquals(ready.serves(rowsOf(64), rowsOf(16)), true); // its pipelines are made again
  assertEquals(await make(), ["16 x 4"]);
});

Deno.test("where each row costs, a step gets the rows that it needs", () => {
  const { context } = contextOf(false);
  const ready = readyRows(context);
  assertEquals(ready.sizesFor(rowsOf(16)), rowsOf(16));
  assertEquals(ready.serves(rowsOf(16), rowsOf(8)), false);
  assertEquals(ready.sizesFor(rowsOf(8)), rowsOf(8));
});
