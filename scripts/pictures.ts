/**
 * `deno task pictures`: the pictures of the README, in docs/images.
 *
 * - `terminal.svg`: what `vkmx` prints on the CPU, from runs of it with the embedded model
 * - `decode.svg`: decode speeds of the table in docs/performance.md that names llama.cpp
 *
 * Both are text made of text: the same runs and figures give the same bytes, which a test holds.
 *
 * @module
 */

import { ROOT, run } from "./tools.ts";

/** The command lines of the terminal, and how many rows of each answer are shown. */
const COMMANDS: readonly (readonly [args: readonly string[], rows: number])[] = [
  [["generate", "--temp", "0", "Once upon a time"], 5],
  [["generate", "--temp", "0", "--no-think", "What is 17 + 25?"], 1],
  [["generate", "--temp", "0", "--no-think", "Hi what is your name"], 3],
];
const COLUMNS = 78;
const ROW = 20;
const MARGIN = 24;
const BAR = 36;
/** Seconds from one line of the terminal to the next. */
const PACE = 0.35;

const FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Words in rows of at most {@link COLUMNS} characters. */
function wrapped(text: string): string[] {
  const rows = [""];
  for (const word of text.trim().split(/\s+/)) {
    const last = rows.at(-1)!;
    if (last !== "" && last.length + 1 + word.length > COLUMNS) rows.push(word);
    else rows[rows.length - 1] = last === "" ? word : `${last} ${word}`;
  }
  return rows;
}

/** An argument as it is typed in a shell. */
function typed(word: string): string {
  return /^[\w.\-]+$/.test(word) ? word : word.includes('"') ? `'${word}'` : `"${word}"`;
}

/** The rows of the terminal: command lines, and what they print. */
async function terminalRows(): Promise<{ readonly text: string; readonly command: boolean }[]> {
  const rows = [];
  for (const [args, most] of COMMANDS) {
    const env = { VKMX_DEVICE: "wasm", NO_COLOR: "1" };
    const { ok, stdout, stderr } = await run([Deno.execPath(), "run", "-A", "src/cli/mod.ts", ...args], { env });
    if (!ok) throw new Error(`vkmx ${args.join(" ")}: ${stderr}`);
    const [story] = args.slice(-1);
    const lines = wrapped(stdout.startsWith(",") ? story + stdout : stdout); // a terminal shows what is continued
    if (lines.length > most) lines.splice(most, Infinity, "…");
    rows.push({ text: `vkmx ${args.map(typed).join(" ")}`, command: true });
    rows.push(...lines.map((text) => ({ text, command: false })), { text: "", command: false });
  }
  return rows.slice(0, -1);
}

/** A terminal window, line after line. */
async function terminal(): Promise<string> {
  const rows = await terminalRows();
  const [width, height] = [COLUMNS * 8.6 + 2 * MARGIN, BAR + MARGIN + rows.length * ROW];
  const dots = ["#ff5f57", "#febc2e", "#28c840"].map((color, i) =>
    `<circle cx="${MARGIN + 20 * i}" cy="18" r="6" fill="${color}"/>`
  );
  const first = rows.findIndex(({ text }) => text === ""); // the first command and its answer are there at once
  const lines = rows.flatMap(({ text, command }, i) => {
    if (text === "") return [];
    const y = BAR + MARGIN + i * ROW;
    const prompt = command ? '<tspan fill="#28c840">$ </tspan>' : "";
    const fill = command ? ' fill="#ffffff"' : "";
    const later = i < first ? "" : ` class="later" style="animation-delay:${((i - first + 1) * PACE).toFixed(2)}s"`;
    return `<text x="${MARGIN}" y="${y}"${fill}${later}>${prompt}${escaped(text)}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>vkmx on the command line</title>
<style>text{font:14px ${FONT};white-space:pre}.later{animation:show .2s both}@keyframes show{from{opacity:0}}@media(prefers-reduced-motion:reduce){.later{animation:none}}</style>
<rect width="${width}" height="${height}" rx="10" fill="#16181d"/>
${dots.join("\n")}
<g fill="#c9d1d9">
${lines.join("\n")}
</g>
</svg>
`;
}

/** A bar of the chart. */
interface Bar {
  readonly name: string;
  readonly value: number;
  readonly own?: boolean;
}

/** Decode speeds at 128 positions out of docs/performance.md. */
async function decodeSpeeds(): Promise<Bar[]> {
  const text = await Deno.readTextFile(`${ROOT}docs/performance.md`);
  const lines = text.split("\n");
  const rows = lines.map((line) => line.split("|").map((one) => one.trim()));
  const cellsWith = (cell: string, from: number = 0): string[] => {
    const cells = rows.slice(from).find((row) => row.includes(cell));
    if (cells === undefined) throw new Error(`docs/performance.md has no table with ${cell}`);
    return cells;
  };
  const number = (source: string, pattern: RegExp): number => {
    const [, found] = pattern.exec(source) ?? [];
    if (found === undefined) throw new Error(`docs/performance.md has no ${pattern}`);
    return Number(found.replaceAll(",", ""));
  };
  const models = cellsWith("llama.cpp, 0.6B †");
  const speeds = cellsWith("decode @128", rows.indexOf(models));
  const speedOf = (model: string): number => number(speeds[models.indexOf(model)], /^([\d,]+)/);
  return [
    { name: "vkmx", value: speedOf("0.6B"), own: true },
    { name: "llama.cpp, own loop", value: number(text, /llama\.cpp's own loop was measured at ([\d,]+),/) },
    { name: "node-llama-cpp", value: speedOf("llama.cpp, 0.6B †") },
  ];
}

/** Bars beside their names. */
async function decodeChart(): Promise<string> {
  const bars = await decodeSpeeds();
  const [width, left, right, row] = [720, 170, 80, 40];
  const most = Math.max(...bars.map(({ value }) => value));
  const height = 56 + bars.length * row;
  const rows = bars.map(({ name, value, own }, i) => {
    const [y, length] = [48 + i * row, (width - left - right) * value / most];
    return `<text x="${left - 12}" y="${y + 17}" text-anchor="end">${escaped(name)}</text>` +
      `<rect x="${left}" y="${y}" width="${length.toFixed(1)}" height="24" rx="4" fill="${
        own ? "#2f6fde" : "#8b949e"
      }"/>` +
      `<text x="${(left + length + 8).toFixed(1)}" y="${y + 17}">${value.toLocaleString("en-US")}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>Qwen3-0.6B, 4 bits, NVIDIA H200, Vulkan: tokens decoded a second</title>
<style>text{font:14px system-ui,sans-serif;fill:#57606a}@media(prefers-color-scheme:dark){text{fill:#c9d1d9}}</style>
<text x="${left}" y="28">Qwen3-0.6B, 4 bits, NVIDIA H200, Vulkan: tokens decoded a second</text>
${rows.join("\n")}
</svg>
`;
}

/** The pictures by their names in docs/images. */
export async function pictures(): Promise<Record<string, string>> {
  return { "terminal.svg": await terminal(), "decode.svg": await decodeChart() };
}

if (import.meta.main) {
  for (const [name, text] of Object.entries(await pictures())) {
    await Deno.mkdir(`${ROOT}docs/images`, { recursive: true });
    await Deno.writeTextFile(`${ROOT}docs/images/${name}`, text);
  }
}
