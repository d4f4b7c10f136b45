/** Dtypes: promotion against MLX's table, and wide values through host memory, copies and gathers on every device. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { DTYPES, promote } from "../../../src/graph/dtype.ts";
import { testDevices } from "../../support/devices/devices.ts";

const TABLE: Record<string, string[]> = JSON.parse(
  await Deno.readTextFile(new URL("../../golden/arrays/promotion.json", import.meta.url)),
);

Deno.test("two dtypes meet in what MLX gives", () => {
  for (const a of DTYPES) {
    DTYPES.forEach((b, i) => assertEquals(promote(a, b).name, TABLE[a.name][i], `${a.name} with ${b.name}`));
  }
});

Deno.test("a dtype and a category are their names as text and in consoles", () => {
  for (const dtype of DTYPES) {
    assertEquals([`${dtype}`, Deno.inspect([dtype]), dtype.name], [dtype.name, `[ ${dtype.name} ]`, String(dtype)]);
  }
  assertEquals(`${mx.ones([2], mx.float16).dtype}, ${mx.floating}`, "float16, floating");
  assertEquals(JSON.parse(JSON.stringify(mx.int8)), { name: "int8", kind: "int", bytes: 1, code: 4 });
});

for (const device of testDevices()) {
  Deno.test(`elements of 8 bytes are kept, copied and gathered on ${device}`, () => {
    mx.withDevice(device, () => {
      const big = 2n ** 62n + 1n;
      const x = mx.array(new BigInt64Array([1n, -2n, big, 4n]));
      assertEquals(x.dtype, mx.int64);
      assertEquals(x.tolist(), [1, -2, big, 4]);
      assertEquals([...x.reshape(2, 2).T.toTypedArray()], [1n, big, -2n, 4n]);
      assertEquals(mx.take(x, mx.array([2, 0], mx.int32)).tolist(), [big, 1]);
      assertEquals(mx.concatenate([x, mx.full([1], 7, mx.int64)]).tolist(), [1, -2, big, 4, 7]);
      assertEquals(mx.full([2], 2n ** 64n - 1n, mx.uint64).tolist(), [2n ** 64n - 1n, 2n ** 64n - 1n]);
      assertEquals(mx.arange(5, 0, -2, mx.int64).tolist(), [5, 3, 1]);
      // Beyond int32 a range is one of int64, unless that is asked for.
      const most = 2 ** 31 - 1;
      assertEquals(mx.arange(most - 1, most + 3).tolist(), [most - 1, most, most + 1, most + 2]);
      assertEquals(mx.arange(-(2 ** 40), 2 - 2 ** 40).tolist(), [-(2 ** 40), 1 - 2 ** 40]);
      assertEquals(mx.arange(most - 1, most + 2, 1, mx.int32).tolist(), [most - 1, most, -most - 1]);
      const dtypes = [[-most - 1, 0, most], [0, most, most], [0, 10, 2 ** 31], [-most - 2, 0, most]] as const;
      assertEquals(dtypes.map(([from, to, step]) => mx.arange(from, to, step).dtype.name), [
        "int32",
        "int32",
        "int64",
        "int64",
      ]);
      const z = mx.array([mx.complex(1, 2), mx.complex(0, -1.5)]);
      assertEquals(z.dtype, mx.complex64);
      assertEquals(z.tolist(), [mx.complex(1, 2), mx.complex(0, -1.5)]);
      assertEquals(String(z), "array([1+2j, 0-1.5j], dtype=complex64)");
    });
  });
}
