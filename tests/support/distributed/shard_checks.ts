/**
 * What each process of tests/distributed/shard_test.ts runs: sharded layers beside the whole ones, which every process has. It prints one line of
 * JSON.
 */

import * as mx from "../../../mod.ts";

const { nn } = mx;
const group = mx.distributed.init();
const [rank, size] = [group.rank(), group.size()];
const failures: string[] = [];
let checks = 0;

/** Compares arrays; `bound` is a part of the largest element. */
function check(name: string, found: mx.Tensor, expected: mx.Tensor, bound = 1e-5): void {
  checks++;
  if (`${found.shape}` !== `${expected.shape}`) {
    failures.push(`${name}: shape ${found.shape}, expected ${expected.shape}`);
    return;
  }
  const [difference, largest] = [mx.max(mx.abs(mx.subtract(found, expected))), mx.max(mx.abs(expected))];
  if (!(Number(difference.item()) <= bound * Math.max(1, Number(largest.item())))) {
    failures.push(`${name}: differs by ${difference.item()} of ${largest.item()}`);
  }
}

function refused(name: string, call: () => unknown, message: RegExp): void {
  checks++;
  try {
    call();
    failures.push(`${name}: was not refused`);
  } catch (error) {
    if (!message.test((error as Error).message)) failures.push(`${name}: ${(error as Error).message}`);
  }
}

/** This process's part of an array along an axis. */
function part(x: mx.Tensor, axis: number): mx.Tensor {
  return mx.split(x, size, axis)[rank];
}

mx.random.seed(3);
const normal = (...shape: number[]): mx.Tensor => mx.random.normal(shape);
const x = normal(5, 256);
const target = normal(5, 512);

for (const bits of [0, 4, 8]) {
  for (const bias of [true, false]) {
    const name = `${bits} bits${bias ? ", a bias" : ""}`;
    const dense = new nn.Linear(256, 512, bias), dense2 = new nn.Linear(512, 256, bias);
    const up = bits === 0 ? dense : dense.toQuantized(64, bits),
      down = bits === 0 ? dense2 : dense2.toQuantized(64, bits);
    const out = nn.shardLinear(up, "all-to-sharded");
    const back = nn.shardLinear(down, "sharded-to-all");
    check(`all-to-sharded, ${name}`, out.forward(x), part(up.forward(x), -1));
    check(`sharded-to-all, ${name}`, back.forward(part(target, -1)), down.forward(target));
    check(`both, ${name}`, back.forward(nn.relu(out.forward(x))), down.forward(nn.relu(up.forward(x))));
    const prefix = bits === 0 ? "" : "Quantized";
    const expected = `${prefix}AllToShardedLinear(input_dims=256, output_dims=512, bias=${bias ? "True" : "False"}`;
    checks++;
    if (!`${out}`.startsWith(expected)) failures.push(`${name}: prints ${out}`);
    const [fresh, freshBack] = bits === 0
      ? [new nn.AllToShardedLinear(256, 512, bias), new nn.ShardedToAllLinear(512, 256, bias)]
      : [
        new nn.QuantizedAllToShardedLinear(256, 512, bias, 64, bits),
        new nn.QuantizedShardedToAllLinear(512, 256, bias, 64, bits),
      ];
    checks++;
    if (`${fresh}` !== `${out}` || `${freshBack}` !== `${back}`) failures.push(`${name}: ${fresh}, ${freshBack}`);
    check(`shape of a drawn pair, ${name}`, mx.zerosLike(freshBack.forward(fresh.forward(x))), mx.zeros([5, 256]));
  }
}

// Gradients of parts are parts of the gradients, and those of the input are whole.
class Pair extends nn.Module {
  constructor(readonly up: mx.nn.Module, readonly down: mx.nn.Module) {
    super();
  }

  override forward(x: mx.Tensor): mx.Tensor {
    return this.down.forward(nn.relu(this.up.forward(x)));
  }
}

const whole = new Pair(new nn.Linear(256, 512), new nn.Linear(512, 256));
const parts = new Pair(nn.shardLinear(whole.up, "all-to-sharded"), nn.shardLinear(whole.down, "sharded-to-all"));
const loss = (model: Pair) => (x: mx.Tensor): mx.Tensor => mx.mean(mx.square(model.forward(x)));
const [expectedLoss, expected] = nn.valueAndGrad(whole, loss(whole))(x);
const [foundLoss, found] = nn.valueAndGrad(parts, loss(parts))(x);
check("loss", foundLoss, expectedLoss);
check("gradient of a divided output's weight", found.up.weight, part(expected.up.weight, 0));
check("gradient of its bias", found.up.bias, part(expected.up.bias, 0));
check("gradient of a divided input's weight", found.down.weight, part(expected.down.weight, 1));
check("gradient of its bias, which is whole", found.down.bias, expected.down.bias);
check("gradient of the input", mx.grad(loss(parts))(x), mx.grad(loss(whole))(x));

// Segments: queries, keys and values in one matrix, of equal sizes, at places and by fractions.
for (const [segments, ends] of [[3, [128, 256]], [[64, 128], [64, 128]], [[0.5, 0.75], [192, 288]]] as const) {
  const joined = new nn.Linear(256, 384);
  for (const layer of [joined, joined.toQuantized(64, 8)]) {
    const sharded = nn.shardLinear(layer, "all-to-sharded", { segments });
    const wanted = mx.split(layer.forward(x), [...ends], -1).map((piece) => part(piece, -1));
    check(`segments ${JSON.stringify(segments)}`, sharded.forward(x), mx.concatenate(wanted, -1));
  }
}

// Experts: three axes, the last but one of which has the outputs. A predicate leaves out what it does not name.
const stack = { weight: normal(3, 8 * size, 16), bias: normal(3, 8 * size), other: normal(4) };
class Stack extends nn.Module {
  weight = stack.weight;
  bias = stack.bias;
  other = stack.other;
}
const inPlace = new Stack();
nn.shardInplace(inPlace, (path) => path === "other" ? undefined : path === "weight" ? [1, 2] : -1);
check(
  "a predicate's axis with segments",
  inPlace.weight,
  mx.concatenate(mx.split(stack.weight, 2, 1).map((half) => part(half, 1)), 1),
);
check("its last axis", inPlace.bias, part(stack.bias, -1));
check("what it leaves out", inPlace.other, stack.other);
const byName = new Stack();
nn.shardInplace(byName, "all-to-sharded", { group });
check("a stack of matrices", byName.weight, part(stack.weight, 1));

if (size > 1) {
  const odd = new nn.Linear(256 + size, 3 * size + 1);
  refused(
    "odd outputs",
    () => nn.shardLinear(odd, "all-to-sharded"),
    /AllToShardedLinear\(\) expected outputs of a multiple/,
  );
  refused(
    "odd inputs",
    () => new nn.ShardedToAllLinear(2 * size + 1, 8),
    /expected inputs of a multiple of \d processes/,
  );
  const groups = new nn.Linear(64 * (size - 1), 64).toQuantized(64, 4);
  refused(
    "odd groups",
    () => nn.shardLinear(groups, "sharded-to-all"),
    /cannot be divided by \d processes along axis 1/,
  );
}
refused(
  "no linear layer",
  () => nn.shardLinear(new nn.ReLU(), "all-to-sharded"),
  /expected a linear layer: found "ReLU"/,
);
refused("another word", () => nn.shardLinear(new nn.Linear(4, 4), "all" as never), /found "all"/);

console.log(JSON.stringify({ rank, size, checks, failures }));
