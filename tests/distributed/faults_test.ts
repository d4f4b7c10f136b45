/** Processes that do not come, come with something else, or end: the others say so and end too. */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { mpirunCode } from "../support/distributed/mpirun.ts";
import { needing } from "../support/needs.ts";
import { runCode } from "../support/processes/programs.ts";

const START = 'import * as mx from "mod.ts";\n';
const WASM = { VKMX_DEVICE: "wasm" };

/** Programs of two or three processes that fail: what one of them says, and how all end. */
const FAULTS: readonly {
  readonly name: string;
  readonly ranks: number;
  readonly code: string;
  readonly says: RegExp;
}[] = [
  {
    name: "a process that does not come is named",
    ranks: 3,
    code: `const group = mx.distributed.init({ timeout: 3 });
      if (group.rank() === 1) await new Promise((resolve) => setTimeout(resolve, 60_000));
      else mx.eval(mx.distributed.allSum(mx.ones([2])));`,
    says: /allSum\(\): after 3 s of 3 processes rank 1 did not come to exchange number 2/,
  },
  {
    name: "a process that makes another call is named",
    ranks: 2,
    code: `const group = mx.distributed.init({ timeout: 60 });
      const { allSum, allGather } = mx.distributed;
      mx.eval(group.rank() === 0 ? allSum(mx.ones([2])) : allGather(mx.ones([3])));`,
    says:
      /exchange number 2 is allSum\(\) of 8 bytes of float32 on rank 0 and allGather\(\) of 12 bytes of float32 on rank 1/,
  },
  {
    name: "a process that sends nothing is named",
    ranks: 2,
    code: `const group = mx.distributed.init({ timeout: 2 });
      if (group.rank() === 0) mx.eval(mx.distributed.recv([2], mx.float32, 1));
      else await new Promise((resolve) => setTimeout(resolve, 60_000));`,
    says: /recv\(\): after 2 s rank 1 has not sent what rank 0 waits for/,
  },
  {
    name: "a training with other parameters on a process is refused",
    ranks: 2,
    code: `mx.random.seed(mx.distributed.init().rank());
      const set = [{ tokens: [1, 2, 3], offset: 0 }, { tokens: [3, 2, 1], offset: 0 }];
      const args = { batchSize: 2, iters: 1, adapterFile: null };
      await mx.lm.tuner.train(new mx.nn.Embedding(4, 4), new mx.optimizers.SGD(0.1), set, { args });`,
    says:
      /train\(\) expected processes with the same sum of trained values: found [\d.]+ on rank 0 and [\d.]+ on rank 1/,
  },
  {
    name: "an error of one process ends all",
    ranks: 2,
    code: `const group = mx.distributed.init();
      if (group.rank() === 1) throw new Error("only here");
      mx.eval(mx.distributed.allSum(mx.ones([2])));`,
    says: /only here/,
  },
  {
    name: "a killed process ends all",
    ranks: 2,
    code: `const group = mx.distributed.init();
      if (group.rank() === 1) Deno.kill(Deno.pid, "SIGKILL");
      mx.eval(mx.distributed.allSum(mx.ones([2])));`,
    says: /signal 9/,
  },
];

for (const { name, ranks, code, says } of FAULTS) {
  Deno.test(await needing(name, "mpirun"), async () => {
    const ended = await mpirunCode(ranks, START + code, WASM);
    assert(ended.code !== 0, "it ended well");
    assertMatch(ended.stderr + ended.stdout, says);
    assert(ended.seconds < 45, `${ended.seconds} s`); // 10 s after the fault, the start on a busy machine included
  });
}

Deno.test(await needing("what an exit code of a process is, mpirun's is", "mpirun"), async () => {
  const { code } = await mpirunCode(2, `${START}mx.distributed.init(); Deno.exit(3);`, WASM);
  assertEquals(code, 3);
});

Deno.test(await needing("arguments that no group has are refused", "mpirun"), async () => {
  const code = `${START}const { init, send, recv, sumScatter, isAvailable } = mx.distributed;
    const group = init();
    const messages = [
      () => send(mx.ones([1]), group.rank()), () => send(mx.ones([1]), 2), () => recv([1], mx.float32, -1),
      () => sumScatter(mx.ones([3])), () => group.split(-1), () => init({ strict: true, backend: "smoke" }),
    ].map((call) => { try { call(); return "none"; } catch (error) { return error.message; } });
    if (group.rank() === 0) console.log(JSON.stringify([isAvailable(), isAvailable("ring"), ...messages]));`;
  const { stdout, stderr } = await mpirunCode(2, code, WASM);
  assertEquals([JSON.parse(stdout), stderr], [[
    true,
    false,
    "send() expected another rank than 0, of 0 to 1: found 0",
    "send() expected another rank than 0, of 0 to 1: found 2",
    "recv() expected another rank than 0, of 0 to 1: found -1",
    "sumScatter() expected a first axis of a multiple of 2: found (3,)",
    "split() expected a color of at least 0: found -1",
    'distributed.init() expected a backend of any, mpi, nccl, jaccl, ring: found "smoke"',
  ], ""]);
});

Deno.test("a program that mpirun started needs a library, any other one does not", async () => {
  const code =
    'import * as mx from "../mod.ts";\nconsole.log(mx.distributed.init().size(), mx.distributed.isAvailable());';
  const env = { VKMX_DEVICE: "wasm", VKMX_MPI: "/nowhere/libmpi.so" };
  const alone = await runCode(code, env);
  assertEquals([alone.code, alone.stdout], [0, "1 false\n"]);
  const started = await runCode(code, { ...env, OMPI_COMM_WORLD_SIZE: "2" });
  assertEquals(started.code, 1);
  assertMatch(started.stderr, /init\(\): VKMX_MPI is "\/nowhere\/libmpi.so", which cannot be opened/);
  const foreign = await runCode(code, { ...env, OMPI_COMM_WORLD_SIZE: "2", VKMX_MPI: "libc.so.6" });
  assertMatch(foreign.stderr, /libc.so.6 is neither Open MPI nor of the standard ABI of MPI 5: install Open MPI/);
});
