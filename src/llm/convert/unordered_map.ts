/**
 * The order in which C++ programs built with GCC's library walk a `std::unordered_map` of strings.
 *
 * MLX keeps the arrays of a safetensors file in such a map and writes them in its order. So the bytes of a file depend on the hash
 * of the names and on how the table grew. This is libstdc++'s table, which the published Linux wheels are built with. It has
 * MurmurHash64A of the name, a prime number of buckets, and one list of all elements. In the list, the elements of a bucket are
 * contiguous, newest first.
 *
 * @module
 */

/** Numbers of buckets that a table takes one after the other as it grows one element at a time: the load never exceeds 1. */
const BUCKETS = [13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933] as const;

const SEED = 0xc70f6907n;
const FACTOR = 0xc6a4a7935bd1e995n;
const WORD = 2n ** 64n - 1n;

const mixed = (x: bigint): bigint => x ^ (x >> 47n);

/** `std::hash<std::string>` of libstdc++ on 64-bit little-endian machines: MurmurHash64A. */
export function hashString(text: string): bigint {
  const bytes = new TextEncoder().encode(text);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const whole = bytes.length & ~7;
  let hash = SEED ^ (BigInt(bytes.length) * FACTOR & WORD);
  for (let at = 0; at < whole; at += 8) {
    const word = mixed(view.getBigUint64(at, true) * FACTOR & WORD) * FACTOR & WORD;
    hash = (hash ^ word) * FACTOR & WORD;
  }
  if (whole < bytes.length) {
    let rest = 0n;
    for (let at = bytes.length - 1; at >= whole; at--) rest = rest << 8n | BigInt(bytes[at]);
    hash = (hash ^ rest) * FACTOR & WORD;
  }
  return mixed(mixed(hash) * FACTOR & WORD);
}

/** The keys, which differ from each other, in the order of a map that they were put into one by one. */
export function unorderedMapOrder(keys: readonly string[]): string[] {
  const hashes = keys.map(hashString);
  let order: number[] = [];
  for (const [i, buckets] of BUCKETS.entries()) {
    const first = i === 0 ? 0 : BUCKETS[i - 1];
    if (i > 0 && keys.length <= first) break;
    const added = Array.from({ length: Math.min(keys.length, buckets) - first }, (_, j) => first + j);
    order = relinked([...order, ...added], hashes, BigInt(buckets));
  }
  return order.map((i) => keys[i]);
}

/** The list after linking elements into an empty table: each goes after the head of its bucket, or first in the list. */
function relinked(elements: readonly number[], hashes: readonly bigint[], buckets: bigint): number[] {
  const members = new Map<bigint, number[]>(); // a Map keeps the order in which buckets got their first element
  for (const element of elements) {
    const bucket = hashes[element] % buckets;
    const found = members.get(bucket);
    if (found === undefined) members.set(bucket, [element]);
    else found.push(element);
  }
  return [...members.values()].flat().reverse();
}
