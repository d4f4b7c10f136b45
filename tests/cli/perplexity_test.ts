/** `vkmx perplexity` row by row. */

import { assertEquals } from "@std/assert";
import { testTable } from "../support/processes/table.ts";

const { text, context, stride, perplexity, sliding } = JSON.parse(
  await Deno.readTextFile(new URL("../golden/models/hidden_states.json", import.meta.url)),
);
/** Figures are those of mlx-lm; on the CPU only VKMX_EXACT=1 has all digits. */
const EXACT = { VKMX_EXACT: "1" };
const FOLDER = await Deno.makeTempDir();
await Deno.writeTextFile(`${FOLDER}/text`, text);
Deno.test.afterAll(() => Deno.removeSync(FOLDER, { recursive: true }));

const at = (value: number): string => value.toFixed(4);
const WINDOWS = ["--context", String(context)];
const file = `${FOLDER}/text`;

testTable("perplexity", [
  { args: ["perplexity", "--help"], stdout: "usage: vkmx perplexity [flags] FILE\n{lines}" },
  {
    args: ["perplexity", ...WINDOWS, "--drop-last", file],
    env: EXACT,
    stdout: `Perplexity: ${at(perplexity[0])} ± ${at(perplexity[1])}\nTokens:     30, {number} tokens-per-sec\n`,
  },
  {
    args: ["perplexity", "--sequence-length", String(context), "--stride", String(stride), "-"],
    stdin: `${text}\n`,
    env: EXACT,
    stdout: `Perplexity: ${
      at(sliding.perplexity)
    } ± {number}\nTokens:     ${sliding.tokens}, {number} tokens-per-sec\n`,
  },
  {
    args: ["perplexity", "--json", file],
    stdout: '{"perplexity":{number},"standard_error":{number},"nll":{number},"tokens":44,"seconds":{number},' +
      '"tokens_per_second":{number},"device":"{device}"}\n',
  },
  {
    args: ["perplexity", "--kv-bits", "8", ...WINDOWS, "--drop-last", file],
    stdout: "Perplexity: {number} ± {number}\nTokens:     30, {number} tokens-per-sec\n",
  },
  {
    args: ["perplexity", "--kv-bits", "4", file],
    code: 2,
    stderr: 'error: --kv-bits is "4", expected 8\n',
  },
  { args: ["perplexity"], code: 2, stderr: 'error: Expected one file with text, found 0: "-" reads stdin\n' },
  { args: ["perplexity", "nowhere"], code: 1, stderr: "error: nowhere cannot be read: does not exist\n" },
  {
    args: ["perplexity", "-"],
    stdin: "a",
    code: 1,
    stderr: "error: The text has 1 tokens, at least 2 are needed\n",
  },
  {
    args: ["perplexity", ...WINDOWS, "--stride", "17", file],
    code: 2,
    stderr: "error: --stride is 17, expected at most --context, which is 16\n",
  },
  {
    args: ["perplexity", "--context", "1", file],
    code: 2,
    stderr: 'error: --context is "1", expected a whole number of at least 2\n',
  },
  {
    args: ["perplexity", "--ctx-size", "64", file],
    code: 2,
    stderr: "error: Unknown flag --ctx-size: did you mean --context? (--help lists all)\n",
  },
  { args: ["ppl", file], code: 2, stderr: 'error: Unknown command "ppl": did you mean perplexity? {text}\n' },
]);

Deno.test("the reference's windows are those of the rows", () => {
  assertEquals([context, stride, sliding.tokens], [16, 6, 44]);
});
