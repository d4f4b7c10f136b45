/**
 * `deno task fuzz`: reads thousands of damaged and hostile files of every format and says what goes wrong.
 *
 *     deno task fuzz                                    10,000 inputs, as in CI
 *     deno task fuzz --count 1000000 --seed nightly
 *     deno task fuzz --format tokenizer,template
 *
 * Every input must be accepted, or refused by an error of the library whose message is one safe line. It may take at
 * most 100 ms (a second for templates, which are programs) and 64 MB. Any other input is minimised and written to
 * tests/golden/fuzz, where a test reads it from then on.
 *
 * @module
 */

import { type Flags, UsageError } from "../src/cli/flags.ts";
import { note, print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import { FORMATS } from "./fuzz/formats.ts";
import { type Figures, fuzz } from "./fuzz/run.ts";
import { writeResult } from "./reliability/results.ts";
import { ROOT } from "./tools.ts";

const FLAGS = {
  "count": { value: "N", help: "inputs (10000)", range: [1, 1e9], whole: true },
  "seed": { value: "TEXT", help: "other inputs (1)" },
  "format": {
    value: "NAMES",
    help: `formats, separated by commas: ${FORMATS.map(({ name }) => name).join(", ")} (all)`,
  },
  "out": { value: "DIR", help: "folder for findings (tests/golden/fuzz)" },
} as const satisfies Flags;

const PROGRAM = { name: "fuzz", about: "Reads damaged and hostile files of every format.", flags: FLAGS };

function describe({ format, inputs, accepted, refused, slowest, memory, findings, killed, missing }: Figures): string {
  const columns = [
    format.padEnd(17),
    String(inputs).padStart(8),
    String(accepted).padStart(9),
    slowest.toFixed(1).padStart(11),
    (memory / 2 ** 20).toFixed(1).padStart(9),
    String(findings.length).padStart(9),
  ];
  const codes = [...refused].sort((a, b) => b[1] - a[1]).map(([code, count]) => `${code} ${count}`).join(", ");
  const note = missing ? `not tried: ${missing}` : codes;
  return `${columns.join(" ")}   ${note}${killed > 0 ? `; ${killed} hung or ended the process` : ""}\n`;
}

function describeFindings({ format, findings }: Figures): string {
  return findings.map(({ outcome, detail, index, seed, times, input: { length }, file }) =>
    `  ${format} ${outcome}: ${detail} (input ${index} of seed ${seed}, ${times} times, ${length} bytes: ${file})\n`
  ).join("");
}

if (import.meta.main) {
  await runMain(PROGRAM, async ({ count = 10_000, seed = "1", format: names, out = "tests/golden/fuzz" }) => {
    const unknown = names?.split(",").find((name) => !FORMATS.some((format) => format.name === name));
    if (unknown !== undefined) {
      throw new UsageError(`--format is "${unknown}", expected one of ${FORMATS.map(({ name }) => name).join(", ")}`);
    }
    const formats = FORMATS.filter(({ name }) => names === undefined || names.split(",").includes(name));
    const start = performance.now();
    const table = await fuzz({
      module: new URL("fuzz/formats.ts", import.meta.url).href,
      formats,
      count,
      seed,
      out: out.startsWith("/") ? out : ROOT + out,
      processes: Math.min(4, navigator.hardwareConcurrency),
      onProgress: (line) => Deno.stderr.isTerminal() && note(`fuzz: ${line}\n`),
    });
    print("format              inputs  accepted  slowest ms   most MB  findings   refused\n");
    print(table.map(describe).join(""));
    const findings = table.map(describeFindings).join("");
    if (findings !== "") print(`\nfindings:\n${findings}`);
    const failed = table.filter((row) => row.findings.length > 0).length;
    const sum = (of: (row: Figures) => number): number => table.reduce((total, row) => total + of(row), 0);
    const most = (of: (row: Figures) => number): number => Math.max(...table.map(of));
    if (names === undefined) {
      const files = table.filter(({ format }) => format !== "template" && format !== "pipelines");
      const chat = table.find(({ format }) => format === "chat")!;
      const template = table.find(({ format }) => format === "template")!;
      await writeResult("fuzz", `deno task fuzz --count ${count}`, [
        {
          check: 13,
          measured: `${sum((row) => row.inputs).toLocaleString("en")} inputs of ${
            table.filter((row) => !row.missing).length
          } formats: ${sum((row) => row.findings.length)} findings, slowest ${
            Math.max(...files.map((row) => row.slowest)).toFixed(0)
          } ms, most ${(most((row) => row.memory) / 2 ** 20).toFixed(0)} MB`,
          ok: failed === 0,
        },
        {
          check: 19,
          measured: `${template.inputs} templates: ${template.findings.length} findings, slowest ${
            template.slowest.toFixed(0)
          } ms; ${chat.inputs} texts by 10 editing templates: ${chat.findings.length} with control ids`,
          ok: template.findings.length + chat.findings.length === 0,
        },
      ]);
    }
    print(`${((performance.now() - start) / 1000).toFixed(0)} s\n`);
    print(`${table.filter((row) => !row.missing).length - failed} passed, ${failed} failed\n`);
    return failed > 0 ? 1 : 0;
  });
}
