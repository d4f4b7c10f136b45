/** The order of contractions of `einsum` is MLX's, says the same, and saves the work that it says. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";

interface PathRow {
  readonly subscripts: string;
  readonly shapes: readonly (readonly number[])[];
  readonly path: readonly (readonly number[])[];
  readonly text: string;
}
const ROWS: readonly PathRow[] = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/arrays/einsum_paths.json", import.meta.url)),
);

Deno.test("paths are those of MLX", () => {
  assert(ROWS.length > 150 && ROWS.some(({ path }) => path.some((step) => step.length > 2)));
  for (const { subscripts, shapes, path, text } of ROWS) {
    const found = mx.einsumPath(subscripts, ...shapes.map((shape) => mx.zeros(shape)));
    assertEquals(found, [path.map((step) => [...step]), text], subscripts);
  }
});

Deno.test("what einsumPath refuses", () => {
  const zeros = (...shape: number[]): mx.Tensor => mx.zeros(shape);
  assertThrows(
    () => mx.einsumPath("ij,jk", zeros(2, 2)),
    mx.ValueError,
    'einsumPath() cannot use "ij,jk" for 1 arrays',
  );
  assertThrows(
    () => mx.einsumPath("ii", zeros(1, 3)),
    mx.ShapeError,
    'einsumPath() letter "i" of "ii" has sizes 1 and 3',
  );
  assertThrows(() => mx.einsum("ii", zeros(1, 3)), mx.ShapeError, "sizes 1 and 3");
  assertThrows(() => mx.einsumPath("ij,jk", zeros(2, 3), zeros(2, 3)), mx.ShapeError, "sizes 3 and 2");
  assertThrows(() => mx.einsumPath("i", zeros(2, 3)), mx.ShapeError, '"i" does not fit an array of shape (2, 3)');
  assertThrows(() => mx.einsumPath(1 as unknown as string), mx.ValueError, "expected subscripts");
});

/** A sum over all letters, one product an element. */
function oracle(
  subscripts: string,
  arrays: readonly { shape: readonly number[]; values: readonly number[] }[],
): number[] {
  const [left, right] = subscripts.split("->");
  const terms = left.split(","), sizes = new Map<string, number>();
  terms.forEach((term, i) =>
    [...term].forEach((c, axis) => sizes.set(c, Math.max(sizes.get(c) ?? 1, arrays[i].shape[axis])))
  );
  const letters = [...sizes.keys()],
    place = (term: string, shape: readonly number[], at: Map<string, number>): number =>
      [...term].reduce((index, c, axis) => index * shape[axis] + (shape[axis] === 1 ? 0 : at.get(c)!), 0);
  const outShape = [...right].map((c) => sizes.get(c)!);
  const out = new Array(outShape.reduce((n, d) => n * d, 1)).fill(0);
  const total = letters.reduce((n, c) => n * sizes.get(c)!, 1);
  for (let flat = 0; flat < total; flat++) {
    const at = new Map<string, number>();
    let rest = flat;
    for (const c of letters) {
      at.set(c, rest % sizes.get(c)!);
      rest = Math.floor(rest / sizes.get(c)!);
    }
    const product = terms.reduce((v, term, i) => v * arrays[i].values[place(term, arrays[i].shape, at)], 1);
    out[place(right, outShape, at)] += product;
  }
  return out;
}

for (const device of testDevices()) {
  Deno.test(`products in the order of the path are right on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        let count = 0;
        for (const { subscripts, shapes } of ROWS) {
          const letters = new Set(subscripts.split("->")[0].replaceAll(",", ""));
          if (!/^[a-z,]+->[a-z]*$/.test(subscripts) || letters.size > 6) continue;
          count++;
          const arrays = shapes.map((shape, k) => ({
            shape,
            values: Array.from({ length: shape.reduce((n, d) => n * d, 1) }, (_, i) => ((i * 7 + k * 3) % 5) - 2),
          }));
          const tensors = arrays.map(({ shape, values }) => mx.array(values).reshape(shape));
          const found = mx.einsum(subscripts, ...tensors).reshape(-1).tolist() as number[];
          // Whole numbers below 2^24 have no rounding.
          const expected = oracle(subscripts, arrays);
          if (expected.every((v) => Math.abs(v) < 2 ** 20)) {
            assertEquals(
              found.map((v) => v + 0),
              expected.map((v) => v + 0),
              subscripts,
            );
          }
        }
        assert(count > 40);
      })));
}
