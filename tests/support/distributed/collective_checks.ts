/**
 * What each process of tests/distributed runs: collectives of all dtypes and shapes, in transforms and in groups. Every process knows the arrays
 * of all, so it computes the expected results by itself, in numbers. It prints one line of JSON.
 */

import * as mx from "../../../mod.ts";

type Numbers = readonly number[];

const { allSum, allMax, allMin, allGather, sumScatter, send, recv, recvLike, init } = mx.distributed;
const world = init();
const [rank, size] = [world.rank(), world.size()];
const failures: string[] = [];
let checks = 0;

function check(name: string, found: mx.Tensor, expected: Numbers, shape?: Numbers, bound = 0): void {
  checks++;
  const values = [...found.astype(found.dtype === mx.complex64 ? mx.complex64 : mx.float32).toTypedArray()];
  const fits = values.length === expected.length &&
    values.every((value, i) => Math.abs(Number(value) - expected[i]) <= bound * Math.abs(expected[i]));
  if (!fits) failures.push(`${name}: ${values.slice(0, 8)}, expected ${expected.slice(0, 8)}`);
  if (shape && `${found.shape}` !== `${shape}`) failures.push(`${name}: shape ${found.shape}, expected ${shape}`);
}

/** The values of a process: small whole numbers, which all dtypes hold and whose sums are exact in all but 8 bits of mantissa. */
function valuesOf(of: number, count: number, isBool: boolean): number[] {
  return Array.from({ length: count }, (_, i) => ((of + 1) * 7 + i * 3) % (isBool ? 2 : 11));
}

const FLOATS = [mx.float32, mx.float16, mx.bfloat16];
const INTEGERS = [mx.int8, mx.int16, mx.int32, mx.int64, mx.uint8, mx.uint16, mx.uint32, mx.uint64];
const everyone = Array.from({ length: size }, (_, of) => of);

for (const dtype of [...FLOATS, ...INTEGERS, mx.bool]) {
  const isBool = dtype === mx.bool;
  for (const count of [1, 7, 2 * size * 3]) {
    const all = everyone.map((of) => valuesOf(of, count, isBool));
    const own = mx.array([...all[rank]], mx.int32).astype(dtype);
    const at = (fold: (values: number[]) => number): number[] =>
      all[0].map((_, i) => fold(all.map((values) => values[i])));
    const total = (values: number[]): number => values.reduce((sum, value) => sum + value, 0);
    const sums = at((values) => isBool ? Math.max(...values) : total(values));
    check(`allSum of ${dtype.name} (${count})`, allSum(own), sums);
    check(`allMax of ${dtype.name} (${count})`, allMax(own), at((values) => Math.max(...values)));
    check(`allMin of ${dtype.name} (${count})`, allMin(own), at((values) => Math.min(...values)));
    check(`allGather of ${dtype.name} (${count})`, allGather(own), all.flat(), [count * size]);
    if (count % size === 0) {
      const part = count / size;
      check(`sumScatter of ${dtype.name}`, sumScatter(own), sums.slice(rank * part, (rank + 1) * part), [part]);
    }
  }
}

// Sums of halves are rounded once: 2048 + 1 + 1 in float16 is 2050, where sums of two at a time give 2048.
const big = mx.array([rank === 0 ? 2048 : rank < 3 ? 1 : 0], mx.float16);
check("allSum of float16 in float32", allSum(big), [size > 2 ? 2050 : 2048]);

// Complex numbers are ordered by their real parts.
const complex = mx.add(mx.array([rank, -rank]), mx.multiply(mx.array([1, 2]), { re: 0, im: 1 } as never));
check("allSum of complex64", mx.real(allSum(complex)), [size * (size - 1) / 2, -size * (size - 1) / 2]);
check("allMax of complex64", mx.real(allMax(complex)), [size - 1, 0]);

// Views, empty arrays, numbers and several axes.
const grid = mx.add(mx.arange(6).reshape(2, 3), rank * 10);
check("a view", allGather(grid.transpose()), everyone.flatMap((of) => [0, 3, 1, 4, 2, 5].map((v) => v + of * 10)), [
  3 * size,
  2,
]);
check("a number", allGather(mx.array(rank)), everyone, [size]);
check("nothing", allSum(mx.zeros([0, 3])), [], [0, 3]);
check("a lazy graph", mx.multiply(allSum(mx.add(grid, 1)), 2).index(0, 0), [
  everyone.reduce((sum, of) => sum + 2 * (of * 10 + 1), 0),
]);

// Groups: neighbours, and the processes backwards.
const pair = world.split(Math.floor(rank / 2));
const mate = pair.size() === 2 ? rank ^ 1 : rank;
check("a group of two", allSum(mx.array([rank]), { group: pair }), [pair.size() === 2 ? rank + mate : rank]);
const backwards = world.split(0, size - 1 - rank);
check("an order by keys", allGather(mx.array([rank]), { group: backwards }), everyone.toReversed());

// Rings: sent to the next, received from the one before.
const [next, before] = [(rank + 1) % size, (rank + size - 1) % size];
const [mine, theirs] = [mx.full([3], rank), mx.full([3], 0)];
if (rank % 2 === 0) mx.eval(send(mine, next));
const got = rank % 2 === 0 ? recvLike(theirs, before) : recv([3], mx.float32, before);
check("a ring", got, [before, before, before]);
if (rank % 2 === 1) mx.eval(send(mine, next));

// Transforms.
const x = mx.array([1, 2, 3]);
const squares = (a: mx.Tensor): mx.Tensor => mx.sum(mx.square(allSum(a)));
check("the gradient of a sum", mx.grad(squares)(x), [1, 2, 3].map((v) => 2 * v * size));
const joined = (a: mx.Tensor): mx.Tensor => mx.sum(mx.multiply(allGather(a), mx.arange(3 * size)));
check("the gradient of joined arrays", mx.grad(joined)(x), [0, 1, 2].map((i) => rank * 3 + i));
check("a derivative", mx.jvp((a: mx.Tensor) => allSum(a), [x], [x])[1][0], [1, 2, 3].map((v) => v * size));
const rows = mx.add(mx.arange(6).reshape(3, 2), rank * 100);
const byRow = mx.vmap((a: mx.Tensor) => allGather(a))(rows) as mx.Tensor;
check(
  "allGather in vmap",
  byRow,
  [0, 1, 2].flatMap((row) => everyone.flatMap((of) => [0, 1].map((i) => of * 100 + row * 2 + i))),
  [3, 2 * size],
);
const wide = mx.add(mx.arange(2 * size).reshape(2, size), rank);
const scattered = mx.vmap((a: mx.Tensor) => sumScatter(a))(wide) as mx.Tensor;
const shift = size * (size - 1) / 2;
check("sumScatter in vmap", scattered, [0, 1].map((row) => (row * size + rank) * size + shift), [2, 1]);
using compiled = mx.compile((a: mx.Tensor) => mx.multiply(allSum(a), 2));
for (const factor of [1, 5]) {
  check(
    "a compiled function",
    compiled(mx.multiply(x, factor)) as mx.Tensor,
    [1, 2, 3].map((v) => 2 * v * factor * size),
  );
}

// Gradients: means over all, in exchanges of two arrays, of one and of all, and the norm of all parts.
const grads = {
  a: [mx.full([2], rank), mx.full([2, 2], 2 * rank)],
  b: mx.full([3], rank + 1),
  c: mx.array([rank], mx.float16),
};
const mean = (size - 1) / 2;
for (const allReduceSize of [0, 20, 2 ** 20]) {
  const { a, b, c } = mx.nn.averageGradients(grads, { allReduceSize });
  check(`means of gradients (${allReduceSize})`, mx.concatenate([a[0], a[1].reshape(-1), b, c.astype(mx.float32)]), [
    ...[mean, mean],
    ...Array(4).fill(2 * mean),
    ...Array(3).fill(mean + 1),
    mean,
  ]);
  if (a[1].shape.length !== 2 || c.dtype !== mx.float16) {
    failures.push("means of gradients have another shape or dtype");
  }
}
const [clipped, norm] = mx.nn.clipGradNormSharded({ w: mx.full([4], 3) }, 1);
check("the norm of all parts", norm, [6 * Math.sqrt(size)], [], 1e-6);
check("clipped parts", clipped.w, Array(4).fill(0.5 / Math.sqrt(size)), [4], 1e-5);

// More than one call of MPI in pieces.
if (Deno.args.includes("--large")) {
  const count = 2 ** 26 + 3;
  const large = mx.full([count], rank + 1);
  check("a large sum", mx.max(allSum(large)), [size * (size + 1) / 2]);
  const total = mx.sum(allGather(mx.full([count], 1, mx.uint8)).astype(mx.int32));
  check("large joined arrays", mx.subtract(total, count * size), [0]);
}

console.log(JSON.stringify({ rank, size, checks, failures }));
