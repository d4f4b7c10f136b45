/**
 * What a server counts and measures, in the text format of Prometheus.
 *
 * @module
 */

import type { lm } from "../../mod.ts";
import type { Served } from "./served.ts";

/** Upper bounds of the buckets of a histogram, in seconds. */
const BUCKETS = {
  time_to_first_token: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
  time_per_output_token: [0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1],
  request_duration: [0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300],
} as const;

/** What histograms measure, for their help lines. */
const MEASURES = {
  time_to_first_token: "Seconds from the arrival of a request to its first token.",
  time_per_output_token: "Seconds for each token after the first of a request, on average.",
  request_duration: "Seconds from the arrival of a request to the end of its reply.",
} as const satisfies Record<keyof typeof BUCKETS, string>;

/** A histogram. */
export type Measure = keyof typeof BUCKETS;

/** What engines count, by the name of the metric. Counters only grow; gauges say what is now. */
const ENGINE: Readonly<
  Record<string, readonly [type: "counter" | "gauge", key: keyof lm.EngineMetrics, help: string]>
> = {
  requests_running: ["gauge", "running", "Requests whose tokens are computed now."],
  requests_waiting: ["gauge", "waiting", "Requests that wait for their turn."],
  kv_bytes: ["gauge", "kvBytes", "Bytes of keys and values that may be used."],
  kv_bytes_used: ["gauge", "kvBytesUsed", "Bytes of keys and values that are used now."],
  answers_total: ["counter", "requests", "Answers that have ended."],
  prompt_tokens_total: ["counter", "promptTokens", "Tokens of prompts."],
  cached_tokens_total: ["counter", "cachedTokens", "Tokens of prompts that a kept prefix had."],
  generation_tokens_total: ["counter", "generationTokens", "Generated tokens."],
  drafted_tokens_total: ["counter", "draftedTokens", "Tokens that were drafted and verified."],
  accepted_tokens_total: ["counter", "acceptedTokens", "Drafted tokens that answers have."],
  preemptions_total: ["counter", "preemptions", "Answers that gave up their memory for others."],
};

/** Counts of one histogram. */
class Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Array(bounds.length + 1).fill(0);
  }

  add(value: number): void {
    const at = this.#bounds.findIndex((bound) => value <= bound);
    this.#counts[at < 0 ? this.#bounds.length : at]++;
    this.#sum += value;
  }

  lines(name: string): string[] {
    let below = 0;
    const buckets = [...this.#bounds, "+Inf"].map((bound, i) =>
      `${name}_bucket{le="${bound}"} ${below += this.#counts[i]}`
    );
    return [...buckets, `${name}_sum ${this.#sum}`, `${name}_count ${below}`];
  }
}

/** The metrics of a server. */
export class Metrics {
  readonly #requests = new Map<string, number>();
  readonly #histograms: Readonly<Record<Measure, Histogram>> = {
    time_to_first_token: new Histogram(BUCKETS.time_to_first_token),
    time_per_output_token: new Histogram(BUCKETS.time_per_output_token),
    request_duration: new Histogram(BUCKETS.request_duration),
  };
  /** Counters of engines that are no more, by model. */
  readonly #ended = new Map<string, Partial<Record<keyof lm.EngineMetrics, number>>>();

  /** Counts a reply. */
  countRequest(endpoint: string, status: number): void {
    const labels = `{endpoint="${endpoint}",status="${status}"}`;
    this.#requests.set(labels, (this.#requests.get(labels) ?? 0) + 1);
  }

  /** Adds a time in milliseconds to a histogram. */
  observe(measure: Measure, milliseconds: number): void {
    this.#histograms[measure].add(milliseconds / 1000);
  }

  /** Keeps the counters of a model whose engine ends. */
  keep({ id, engine }: Served): void {
    const kept = this.#ended.get(id) ?? {};
    for (const [, key] of Object.values(ENGINE).filter(([type]) => type === "counter")) {
      kept[key] = (kept[key] ?? 0) + engine.metrics[key];
    }
    this.#ended.set(id, kept);
  }

  /** All of them as text. */
  text(loaded: readonly Served[]): string {
    const lines = [
      ...head("requests_total", "counter", "Replies by endpoint and status."),
      ...Array.from(this.#requests, ([labels, count]) => `vkmx_requests_total${labels} ${count}`),
    ];
    for (const [name, [type, key, help]] of Object.entries(ENGINE)) {
      lines.push(...head(name, type, help));
      const live = new Map(loaded.map(({ id, engine }) => [id, engine.metrics[key]]));
      const ids = type === "gauge" ? live.keys() : new Set([...live.keys(), ...this.#ended.keys()]);
      for (const id of ids) {
        const value = (live.get(id) ?? 0) + (type === "gauge" ? 0 : this.#ended.get(id)?.[key] ?? 0);
        lines.push(`vkmx_${name}{model="${escaped(id)}"} ${value}`);
      }
    }
    lines.push(
      ...head("host_weight_bytes", "gauge", "Bytes of weights that are in host memory."),
      ...loaded.map(({ id, hostBytes }) => `vkmx_host_weight_bytes{model="${escaped(id)}"} ${hostBytes}`),
    );
    for (const [measure, histogram] of Object.entries(this.#histograms)) {
      const name = `${measure}_seconds`;
      lines.push(...head(name, "histogram", MEASURES[measure as Measure]), ...histogram.lines(`vkmx_${name}`));
    }
    return `${lines.join("\n")}\n`;
  }
}

function head(name: string, type: string, help: string): string[] {
  return [`# HELP vkmx_${name} ${help}`, `# TYPE vkmx_${name} ${type}`];
}

/** A label's value. */
function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
