/**
 * `vkmx generate` with answers of a format, row by row.
 */

import { testTable } from "../support/processes/table.ts";

const FOLDER = await Deno.makeTempDir();
const SCHEMA = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`;
await Deno.writeTextFile(`${FOLDER}/schema.json`, SCHEMA);
await Deno.writeTextFile(`${FOLDER}/wrong.json`, "{");
await Deno.writeTextFile(`${FOLDER}/list.json`, "[]");
Deno.test.afterAll(() => Deno.removeSync(FOLDER, { recursive: true }));

const greedy = (...args: string[]): string[] => ["generate", "--temp", "0", "--verbose", "false", "--raw", ...args];
const usage = (message: string, ...args: string[]): Parameters<typeof testTable>[1][number] => ({
  args: ["generate", ...args],
  code: 2,
  stderr: `error: ${message}\n`,
});

testTable("response formats", [
  { args: greedy("--json-schema", SCHEMA, "Once upon a time"), stdout: '{"ok": {text}}\n' },
  { args: greedy("--json-schema", `${FOLDER}/schema.json`, "Once upon a time"), stdout: '{"ok": {text}}\n' },
  {
    args: greedy("--response-format", "json", "-m", "1", "Once"),
    stdout: "{\n",
    stderr: "[the answer was cut off at the limit of 1 tokens: --max-tokens sets it]\n",
  },
  {
    args: greedy("--response-format", "text", "-m", "3", "Once upon a time"),
    stdout: ", there was\n",
    stderr: "[the answer was cut off at the limit of 3 tokens: --max-tokens sets it]\n",
  },
  usage("--json-schema and --response-format exclude each other", "--json-schema", SCHEMA, "--response-format", "json"),
  usage('--response-format is "jsn": did you mean json?', "--response-format", "jsn"),
  usage('--json-schema "none.json" cannot be read: {text}', "--json-schema", "none.json"),
  usage('--json-schema "{text}wrong.json" is no JSON: {text}', "--json-schema", `${FOLDER}/wrong.json`),
  usage('--json-schema "{text}list.json" is no JSON object', "--json-schema", `${FOLDER}/list.json`),
  {
    args: greedy("--json-schema", '{"type":"number","multipleOf":3}', "Once"),
    code: 1,
    stderr: 'error: {text}"multipleOf", which is not held: leave it out, and check answers for it\n',
  },
]);
