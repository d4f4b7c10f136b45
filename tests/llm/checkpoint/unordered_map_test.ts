/**
 * Tensors are in a file in the order in which libstdc++ walks a map of their names. The oracle is MLX's order of 7,000
 * names, more than any model has (reference/convert.py).
 */

import { assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import { hashString, unorderedMapOrder } from "../../../src/llm/convert/unordered_map.ts";
import { ORDERED_NAMES } from "../../support/models/conversions.ts";

Deno.test("unorderedMapOrder() is the order of the files that MLX writes", () => {
  const { order } = JSON.parse(
    Deno.readTextFileSync(new URL("../../golden/models/tensor_order.json", import.meta.url)),
  );
  const found = Object.entries(order).map(([count]) => {
    const names = unorderedMapOrder(ORDERED_NAMES.slice(0, Number(count)));
    return [count, createHash("sha256").update(names.join("\n")).digest("hex")];
  });
  assertEquals(Object.fromEntries(found), order);
});

Deno.test("hashString() is MurmurHash64A with the seed of libstdc++", () => {
  // Of the empty text, and of texts that end in the middle of a word.
  assertEquals(hashString("").toString(16), "553e93901e462a6e");
  assertEquals(new Set(["a", "ab", "abcdefg", "abcdefgh", "abcdefghi"].map(hashString)).size, 5);
});
