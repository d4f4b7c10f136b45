/**
 * The metrics of replicas as those of one server, and by replica, in the text format of Prometheus.
 *
 * `vkmx_NAME` is what one server has: sums over all replicas, but for requests, which are those of the front. `vkmx_replica_NAME` has a
 * label `replica`. So a sum over labels counts nothing twice.
 *
 * @module
 */

import { Metrics } from "../metrics.ts";
import type { Replica } from "./fleet.ts";
import type { Choice } from "./router.ts";

/** Metrics of one name. */
interface Family {
  readonly type: string;
  readonly help: string;
  /** Values by name and labels. */
  readonly samples: ReadonlyMap<string, number>;
}

/** Metrics of the front's own requests. */
const OWN: ReadonlySet<string> = new Set(["vkmx_requests_total", "vkmx_request_duration_seconds"]);

/** What a process has counted, as it was last read. */
interface Read {
  readonly process: object;
  readonly families: ReadonlyMap<string, Family>;
}

/** What a front counts, and what its replicas do. */
export class FrontMetrics extends Metrics {
  readonly #choices = new Map<string, number>();
  readonly #read = new Map<number, Read>();
  /** Counts of processes that have ended, so that sums never fall. */
  readonly #ended = new Map<string, number>();

  /** Counts the choice of a replica. */
  countChoice({ replica, reason }: Choice): void {
    const labels = `{replica="${replica}",reason="${reason}"}`;
    this.#choices.set(labels, (this.#choices.get(labels) ?? 0) + 1);
  }

  /** Takes the metrics of a process of a replica. */
  read(replica: number, process: object, text: string): void {
    const before = this.#read.get(replica);
    if (before && before.process !== process) this.#keep(before);
    this.#read.set(replica, { process, families: familiesOf(text) });
  }

  /** All as text. Gauges are of the replicas that run. */
  merged(replicas: readonly Replica[]): string {
    const own = familiesOf(this.text([]));
    const lines: string[] = [];
    for (const [name, family] of own) lines.push(...head(name, family), ...this.#sums(name, family, replicas));
    for (const [name, { type, help }] of own) {
      if (OWN.has(name)) continue;
      const samples = Array.from(this.#read, ([replica, { families }]) =>
        Array.from(
          families.get(name)?.samples ?? [],
          ([key, value]) => `${named(key, replica)} ${value}`,
        ));
      lines.push(...head(name.replace("vkmx_", "vkmx_replica_"), { type, help }), ...samples.flat());
    }
    const row = (replica: Replica, name: string, value: number): string =>
      `vkmx_replica_${name}{replica="${replica.number}"} ${value}`;
    lines.push(
      ...head("vkmx_replica_up", { type: "gauge", help: "1 if the replica runs." }),
      ...replicas.map((one) => row(one, "up", one.process === undefined ? 0 : 1)),
      ...head("vkmx_replica_restarts_total", { type: "counter", help: "How often it was started again." }),
      ...replicas.map((one) => row(one, "restarts_total", one.restarts)),
      ...head("vkmx_replica_requests_total", { type: "counter", help: "Requests by why the replica was chosen." }),
      ...Array.from(this.#choices, ([labels, count]) => `vkmx_replica_requests_total${labels} ${count}`),
    );
    return `${lines.join("\n")}\n`;
  }

  #sums(name: string, { type, samples }: Family, replicas: readonly Replica[]): string[] {
    if (OWN.has(name)) return Array.from(samples, ([key, value]) => `${key} ${value}`);
    const sums = new Map<string, number>();
    const add = (key: string, value: number): void => void sums.set(key, (sums.get(key) ?? 0) + value);
    for (const [replica, { process, families }] of this.#read) {
      if (type === "gauge" && replicas[replica].process !== process) continue;
      families.get(name)?.samples.forEach((value, key) => add(key, value));
    }
    for (const [key, value] of this.#ended) if (familyOf(key) === name) add(key, value);
    return Array.from(sums, ([key, value]) => `${key} ${value}`);
  }

  #keep({ families }: Read): void {
    for (const { type, samples } of families.values()) {
      if (type === "gauge") continue;
      for (const [key, value] of samples) this.#ended.set(key, (this.#ended.get(key) ?? 0) + value);
    }
  }
}

/** The families of a text. */
function familiesOf(text: string): ReadonlyMap<string, Family> {
  const families = new Map<string, Family & { readonly samples: Map<string, number> }>();
  const helps = new Map(Array.from(text.matchAll(/^# HELP (\S+) (.*)$/gm), ([, name, help]) => [name, help]));
  for (const [, name, type] of text.matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
    families.set(name, { type, help: helps.get(name) ?? "", samples: new Map() });
  }
  for (const [, key, value] of text.matchAll(/^([^#\s].*) (\S+)$/gm)) {
    families.get(familyOf(key))?.samples.set(key, Number(value));
  }
  return families;
}

/** The family of a sample: its name, without the endings of a histogram. */
function familyOf(key: string): string {
  const name = key.replace(/\{.*$/s, "");
  return name.replace(/(_seconds)_(bucket|sum|count)$/, "$1");
}

/** A sample's name and labels, as one of a replica. */
function named(key: string, replica: number): string {
  const [, name, labels] = /^vkmx_([^{]+)(?:\{(.*)\})?$/s.exec(key)!;
  return `vkmx_replica_${name}{replica="${replica}"${labels === undefined ? "" : `,${labels}`}}`;
}

function head(name: string, { type, help }: Pick<Family, "type" | "help">): string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}
