/** Prompt caches of `vkmx generate`, row by row. Rows of a table may run two at a time, so each table reads what those before it wrote. */

import * as mx from "../../mod.ts";
import { anyDevice } from "../support/devices/devices.ts";
import { GOLDEN, TINY_DIR } from "../support/models/models.ts";
import { cacheFile } from "../support/models/prompt_caches.ts";
import { testTable } from "../support/processes/table.ts";

const DEVICE = anyDevice();
mx.withDevice(DEVICE, mx.defaultDevice); // opened outside the tests, which count resources
const FOLDER = await Deno.makeTempDir();
Deno.test.afterAll(() => Deno.removeSync(FOLDER, { recursive: true }));
const [saved, chained, other, foreign] = ["saved", "chained", "other", "foreign"].map((name) =>
  `${FOLDER}/${name}.safetensors`
);
await Deno.mkdir(`${FOLDER}/model`);
for (const { name } of Deno.readDirSync(TINY_DIR)) {
  await Deno.copyFile(new URL(name, TINY_DIR), `${FOLDER}/model/${name}`);
}
const CONFIG = JSON.parse(await Deno.readTextFile(`${FOLDER}/model/config.json`));
await Deno.writeTextFile(`${FOLDER}/model/config.json`, JSON.stringify({ ...CONFIG, rope_theta: 10000 }));

const BEGIN = "Once upon a time, there was a little girl";
const END = GOLDEN[0].text.replace("<|endoftext|>", "").slice(", there was a little girl".length);
const CUT = "[the answer was cut off at the limit of 3 tokens: --max-tokens sets it]\n";
const generate = (...args: string[]): string[] => ["generate", "--temp", "0", "--verbose", "false", ...args];

testTable("generate that save prompt caches", [
  { args: generate("-m", "3", "--save-prompt-cache", saved, BEGIN), stdout: " named Nina.\n", stderr: CUT },
  {
    args: generate("-m", "3", "--prompt-cache", chained, "--save-prompt-cache", chained, BEGIN),
    stdout: " named Nina.\n",
    stderr: CUT,
  },
  {
    args: generate("--save-prompt-cache", `${FOLDER}/no/where.safetensors`, BEGIN),
    code: 1,
    stderr: `error: ${FOLDER}/no/where.safetensors cannot be written: its folder does not exist\n`,
  },
]);

Deno.test("a cache without the ids of its tokens, as mlx-lm saves it", () =>
  mx.withDevice(DEVICE, () => {
    const { "8.tokens": _ids, ...arrays } = mx.loadSafetensors(saved);
    const { format: _format, "0.vkmx": _own, ...metadata } = mx.safetensorsMetadata(saved);
    mx.saveSafetensors(foreign, arrays, metadata);
    mx.dispose(arrays);
  }));

testTable("generate that read prompt caches", [
  { args: generate("--prompt-cache", saved, BEGIN), stdout: `${END}\n` },
  { args: generate("--kv-bits", "8", "--prompt-cache", saved, BEGIN), stdout: `${END}\n` },
  { args: generate("-m", "3", "--kv-bits", "8", "--max-kv-size", "64", BEGIN), stdout: " named Nina.\n", stderr: CUT },
  { args: generate("--max-kv-size", "7", BEGIN), code: 2, stderr: 'error: --max-kv-size is "7", expected a{text}\n' },
  { args: generate("--kv-bits", "4", BEGIN), code: 2, stderr: 'error: --kv-bits is "4", expected 8\n' },
  {
    args: generate("--json", "-m", "3", "--prompt-cache-file", saved, `${BEGIN} named`),
    stdout: '{"text":" Nina. She",{text}"prompt_tokens":11,"cached_tokens":10,{text}}\n',
    stderr: CUT,
  },
  { args: generate("--prompt-cache", chained, "--save-prompt-cache", other, BEGIN), stdout: `${END}\n` },
  {
    args: generate("--prompt-cache", `${FOLDER}/nowhere`, BEGIN),
    code: 1,
    stderr: `error: ${FOLDER}/nowhere: does not exist\n`,
  },
  {
    args: generate("--prompt-cache", cacheFile("plain"), BEGIN),
    code: 1,
    stderr: "error: {text}plain.safetensors is of another model: it has 2 layers, this one 8\n",
  },
  {
    args: generate("--model", `${FOLDER}/model`, "--prompt-cache", saved, BEGIN),
    code: 1,
    stderr: `error: ${saved} is of another model: its ropeTheta is 1000000, this one's 10000\n`,
  },
  {
    args: generate("--raw", "-m", "3", "--prompt-cache", foreign, " She lived"),
    stdout: " near the library\n",
    stderr: CUT,
  },
  {
    args: generate("--no-think", "--prompt-cache", foreign, "Hi"),
    code: 1,
    stderr: `error: ${foreign} does not tell which tokens it holds: --raw puts the prompt after them\n`,
  },
  {
    args: generate("--load-prompt-cache", saved, BEGIN),
    code: 2,
    stderr: "error: Unknown flag --load-prompt-cache: did you mean --prompt-cache? (--help lists all)\n",
  },
]);
