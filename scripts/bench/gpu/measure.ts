/**
 * One shape of `deno task bench:gpu`. Its model is lent, and its cases are measured in one process that has loaded it once. Every figure is
 * passed on as soon as it is there. A case that fails or hangs takes its process with it, and the others go on in a new one.
 *
 * @module
 */

import { median } from "../../../src/cli/bench/figures.ts";
import { note } from "../../../src/cli/output.ts";
import type { ModelShape } from "../../synthetic/synthetic.ts";
import {
  type Answer,
  type Case,
  type CaseResult,
  ggufFile,
  type HostTimes,
  installPeer,
  joinTimes,
  type Line,
  modelFolder,
  PROMPT,
  type Rates,
  ratioOf,
  runPeer,
  sideLines,
  type SideSettings,
  type Times,
} from "../compare.ts";
import { describeRuns } from "../details.ts";
import { LAYER_KERNELS, OP_BY_OP, VARIANTS } from "../step_variants.ts";
import * as mx from "../../../mod.ts";
import { type Effort, type GpuCase, gpuCases, type Group } from "./cases.ts";
import { floorOf, type Stored } from "./floors.ts";
import { sizesOf } from "./sizes.ts";
import { measureSplit, secondDevice } from "./split.ts";
import type { Figure } from "./table.ts";
import { NEAR_CODE } from "./targets.ts";
import { pipelineName } from "../../../src/schedule/plan/profile_code.ts";

/** The shape whose model is kept; others are made for the time of a measurement. */
const KEPT = "qwen3-0.6b";
/** Most tokens of one pass of the peer, and most sequences that it is asked for. */
const PEER_BATCH = 2048;
const PEER_ROWS = 16;

/** Variants whose code is asked for: a grid has the kernels of one sequence, products have those of prompts. */
const CODE_VARIANTS = [...VARIANTS.one, ...VARIANTS.several.filter((variant) => variant.startsWith("batched"))];

/** A model to measure: a directory, or a synthetic one of the shape of that name in 4 bits, or of `shape` in others. */
export interface Target {
  readonly name: string;
  readonly dir?: string;
  readonly shape?: string;
  readonly bits?: number;
}

/** The measurements, and how they are made. */
export interface GpuRun {
  readonly device: string;
  /** Default that of `mx.lm.load`. */
  readonly dtype: "float16" | "bfloat16" | "float32" | undefined;
  readonly groups: readonly Group[];
  readonly effort: Effort;
  readonly rounds: number;
  /** Milliseconds that a figure may take. */
  readonly patience: number;
  /** When to end, of performance.now(). */
  readonly until: number;
  /** Where the peer and its model are; undefined leaves it out. */
  readonly peer: { readonly folder?: string; readonly gguf?: string } | undefined;
  /** Environment of vkmx's processes. */
  readonly env: Readonly<Record<string, string>>;
  /** The device that shares the layers, for the rows of that. */
  readonly second: string | undefined;
}

/** Takes figures. */
export type Put = (figure: Figure) => void;

/** A folder for models that goes with the scope. */
async function borrowedFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await Deno.makeTempDir();
  return { path, [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }) };
}

/** Measures a shape, and gives what there is to read besides its figures. */
export async function measureShape(run: GpuRun, target: Target, put: Put): Promise<string> {
  await using folder = await borrowedFolder();
  const where = target.name === KEPT ? undefined : folder.path;
  const dir = target.dir ?? await modelFolder(target.shape ?? target.name, where, target.bits);
  const { shape: sizes, stored } = await sizesOf(dir, run.dtype);
  const shape = new ShapeRun(run, nameOf(target, run), sizes, stored, put);
  const peer = run.peer && target.dir === undefined && target.bits === undefined
    ? run.peer.folder ?? await installPeer()
    : undefined;
  const gguf = peer && (run.peer!.gguf ?? await ggufFile(target.name, where));
  await shape.measure(dir, peer !== undefined && gguf !== undefined ? { folder: peer, gguf } : undefined);
  return shape.text;
}

/** The name in rows, with what differs from the defaults of `mx.lm.load`. */
function nameOf({ name }: Target, { dtype }: GpuRun): string {
  return dtype === undefined ? name : `${name} ${dtype}`;
}

/** The measurement of one shape. */
class ShapeRun {
  readonly #run: GpuRun;
  readonly #name: string;
  readonly #shape: ModelShape;
  readonly #stored: Stored;
  readonly #put: Put;
  readonly #cases: readonly GpuCase[];
  /** Of all rounds so far. */
  readonly #own: Pick<Answer, "times">[] = [];
  readonly #peers: Answer[] = [];
  /** Cases that were handed on. */
  readonly #done = new Set<GpuCase>();
  #rates: Rates | undefined;
  #code = false;
  /** Texts besides the figures. */
  text = "";

  constructor(run: GpuRun, name: string, shape: ModelShape, stored: Stored, put: Put) {
    this.#run = run;
    this.#name = name;
    this.#shape = shape;
    this.#stored = stored;
    this.#put = put;
    this.#cases = gpuCases(run.groups, run.effort);
  }

  /** All rounds, the peer first in each. */
  async measure(dir: string, peer: { readonly folder: string; readonly gguf: string } | undefined): Promise<void> {
    const { rounds, groups } = this.#run;
    if (groups.includes("load")) await this.#firstStart(dir);
    const turns = groups.some((group) => group !== "split") ? rounds : 0;
    for (let round = 1; round <= turns && !this.#over; round++) {
      if (peer) await this.#peerRound(peer);
      await this.#round(dir, round === turns);
    }
    if (groups.includes("split")) await this.#split(dir);
    for (const c of this.#cases) {
      if (this.#done.has(c)) continue;
      const why = this.#over ? "the time was over" : "not measured";
      this.#putCase(c, { case: c.name, times: [], why: joinTimes(this.#own)[c.name] ? undefined : why });
    }
    if (groups.includes("code") && !this.#code) {
      const why = this.#over ? "the time was over" : "the driver does not tell";
      this.#figure({ case: "code of a layer", value: null, unit: "KB", note: why });
    }
  }

  get #over(): boolean {
    return performance.now() >= this.#run.until;
  }

  #figure(figure: Omit<Figure, "shape">): void {
    this.#put({ shape: this.#name, ...figure });
  }

  #lines(dir: string, settings: SideSettings, env: Readonly<Record<string, string>> = {}): AsyncGenerator<Line> {
    const { device, dtype, until, patience, env: kept } = this.#run;
    return sideLines(dir, { device, dtype, ...settings }, { ...kept, ...env }, { until, limit: patience });
  }

  /** The load of a process that finds no compiled pipelines. */
  async #firstStart(dir: string): Promise<void> {
    const unit = "s";
    const title = "load to first token, first start";
    try {
      for await (const line of this.#lines(dir, { cases: [] }, { __GL_SHADER_DISK_CACHE: "0" })) {
        if ("load" in line) this.#figure({ case: title, value: line.load.times.load[0] / 1000, unit });
      }
    } catch (error) {
      this.#figure({ case: title, value: null, unit, note: (error as Error).message });
    }
  }

  /** One device beside two, in this process: nothing else runs meanwhile. */
  async #split(dir: string): Promise<void> {
    const { device, second = secondDevice(device), dtype, effort } = this.#run;
    try {
      for await (const figure of measureSplit(dir, [device, second], effort, dtype && mx[dtype])) {
        if (this.#over) return;
        this.#figure(figure);
      }
    } catch (error) {
      this.#figure({ case: "two by layers", value: null, unit: "tok/s", note: (error as Error).message });
    }
  }

  async #peerRound({ folder, gguf }: { readonly folder: string; readonly gguf: string }): Promise<void> {
    const cases = this.#cases
      .filter(({ variant, behind, rows = 1, group }) =>
        (variant ?? "any") === "any" && !behind && rows <= PEER_ROWS && group !== "speculation" && group !== "mtp"
      )
      .map((c): Case => ({ ...c, name: c.title, warmUps: 1, repeats: 1 })); // its figures hardly move
    const answer = await runPeer(folder, gguf, { gpu: true, batch: PEER_BATCH, cases });
    if (answer) this.#peers.push(answer);
  }

  /** One round of vkmx, in as many processes as it takes. */
  async #round(dir: string, last: boolean): Promise<void> {
    const { groups, effort } = this.#run;
    let pending = this.#cases;
    let extras = last;
    const times: Record<string, readonly number[]> = {};
    this.#own.push({ times });
    while (!this.#over) {
      try {
        const settings = {
          cases: pending,
          rates: this.#rates === undefined,
          host: extras && groups.includes("host"),
          profiles: extras && groups.includes("where"),
          code: extras && groups.includes("code") ? CODE_VARIANTS : [],
          everyKind: effort.variants,
        };
        for await (const line of this.#lines(dir, settings)) {
          if ("load" in line && times.load === undefined) {
            times.load = line.load.times.load;
            if (last) this.#putLoad();
          }
          if ("result" in line) {
            const [c, ...others] = pending;
            pending = others;
            times[c.name] = line.result.times;
            if (last) this.#putCase(c, line.result);
          }
          this.#extra(line);
        }
        return;
      } catch (error) {
        note(`${this.#name} could not be measured further: ${(error as Error).message}\n`);
        if (this.#over || times.load === undefined) return;
        const [failed, ...others] = pending;
        if (failed) this.#putCase(failed, { case: failed.name, times: [], why: (error as Error).message });
        else if (!extras) return;
        else extras = false; // after all cases
        if (pending.length === 0) return;
        pending = others;
      }
    }
  }

  /** Messages of a process besides its cases. */
  #extra(line: Line): void {
    if ("rates" in line) {
      const { copy, matrix } = this.#rates = line.rates;
      this.#figure({ case: "a copy", value: copy, unit: "GB/s" });
      this.#figure({ case: "matrix units, from registers", value: matrix, unit: "TFLOP/s" });
    }
    if ("host" in line) this.#putHost(line.host);
    if ("profiles" in line) {
      this.text += `\n${this.#name}${describeRuns(line.profiles, this.#rates!, this.#shape)}`;
    }
    if ("code" in line) this.#putCode(line.code);
  }

  /** The median of a case's times of all rounds, as its row has it. */
  #value(c: Case & Pick<GpuCase, "unit">, times: Times, name: string): number | null {
    const ms = median(times[name]);
    if (ms === null || c.unit === "ms") return ms;
    return (c.kind === "prefill" ? c.prompt : 1) * 1000 / ms;
  }

  #putCase(c: GpuCase, { variant, why }: CaseResult): void {
    if (this.#done.has(c)) return;
    this.#done.add(c);
    if (why === "left out") return;
    const [own, peers] = [joinTimes(this.#own), joinTimes(this.#peers)];
    // A step over several tokens of a sequence reads the weights once, so drafts have no floor a token.
    const least = this.#rates && c.drafted === undefined
      ? floorOf(this.#shape, this.#stored, c, this.#rates)
      : undefined;
    const forced = c.variant === "any" ? undefined : c.variant;
    const ran = variant === null ? OP_BY_OP : variant; // undefined where that was not asked
    this.#figure({
      case: c.title,
      target: c.name,
      variant: forced ?? (why === undefined ? ran : undefined) ?? null,
      value: this.#value(c, own, c.name),
      unit: c.unit,
      floor: least === undefined ? null : this.#value({ ...c }, { floor: [least / (c.rows ?? 1)] }, "floor"),
      peer: this.#value(c, peers, c.title),
      note: why ?? this.#gainOf(c, own),
    });
  }

  /** How much faster drafts make the tokens of a case. */
  #gainOf(c: GpuCase, own: Times): string | undefined {
    const plain = this.#cases.find(({ group, drafted }) => group === c.group && drafted === undefined);
    if (c.drafted === undefined || !plain) return undefined;
    const gain = ratioOf(this.#value(c, own, c.name), this.#value(plain, own, plain.name), c.unit);
    return gain === null ? undefined : `${gain.toFixed(2)} × without drafts`;
  }

  #putLoad(): void {
    if (!this.#run.groups.includes("load")) return;
    const seconds = (answers: readonly Pick<Answer, "times">[]): number | null => {
      const ms = median(joinTimes(answers).load);
      return ms === null ? null : ms / 1000;
    };
    this.#figure({
      case: "load to first token",
      value: seconds(this.#own),
      unit: "s",
      peer: seconds(this.#peers),
    });
  }

  #putHost({ hostUs, promptUs, dispatches, barriers, submissions }: HostTimes): void {
    const rows: readonly (readonly [string, number, Figure["unit"]])[] = [
      ["host time a token", hostUs, "us"],
      [`host time before a prompt of ${PROMPT}`, promptUs.before, "us"],
      [`host time after a prompt of ${PROMPT}`, promptUs.after, "us"],
      ["dispatches a token", dispatches, ""],
      ["barriers a token", barriers, ""],
      ["submissions a token", submissions, ""],
    ];
    for (const [title, value, unit] of rows) this.#figure({ case: title, value, unit });
  }

  /** The code of each kernel of a step, and of those of a layer together. */
  #putCode({ variant, pipelines }: Extract<Line, { code: unknown }>["code"]): void {
    const step = pipelines.filter(({ region }) => region === "decoder step");
    const layer = step.filter(({ kernel }) => LAYER_KERNELS.test(kernel));
    if (layer.length === 0 || layer.some(({ bytes }) => bytes === undefined)) return;
    this.#code = true;
    const unit = "KB";
    for (const p of step) {
      const note = `${p.registers ?? "?"} registers, ${p.spilledBytes ?? "?"} bytes spilled`;
      this.#figure({ case: `code: ${pipelineName(p)}`, variant, value: (p.bytes ?? 0) / 1024, unit, note });
    }
    const sum = layer.reduce((all, { bytes }) => all + bytes!, 0);
    this.#figure({ case: "code of a layer", variant, value: sum / 1024, unit, aim: NEAR_CODE / 1024 });
  }
}
