/** Mistakes in the server: src/server. */

import type { Mutant } from "./mutant.ts";

const CHAT_TESTS = ["tests/server/chat_completions_test.ts", "tests/server/completions_test.ts"] as const;
const ROUTER_TESTS = ["tests/server/router_test.ts"] as const;
const REPLICAS_TESTS = ["tests/server/replicas_test.ts"] as const;
const HTTP_TESTS = ["tests/server/http_test.ts"] as const;

export const SERVER = [
  {
    name: "a field that is null has a wrong type",
    file: "src/server/fields.ts",
    find: "value[name] ?? undefined : undefined;",
    replace: "value[name] : undefined;",
    tests: CHAT_TESTS,
  },
  {
    name: "a list may have one item more than its limit",
    file: "src/server/fields.ts",
    find: "if (value.length > max) throw",
    replace: "if (value.length > max + 1) throw",
    tests: CHAT_TESTS,
  },
  {
    name: "all choices of a request draw with its seed",
    file: "src/server/sampling.ts",
    find: "(fields.seed + i) %",
    replace: "fields.seed %",
    tests: CHAT_TESTS,
  },
  {
    name: "a request without a key is answered",
    file: "src/server/access.ts",
    find: "if (given !== undefined && isEqual(given, key)) return;",
    replace: "if (given === undefined || isEqual(given, key)) return;",
    tests: HTTP_TESTS,
  },
  {
    name: "a web page of any origin may ask the server under any name",
    file: "src/server/access.ts",
    find: "if (/^(localhost|127\\.0\\.0\\.1|\\[::1\\])(:\\d+)?$/.test(host) && origin",
    replace: "if (origin",
    tests: HTTP_TESTS,
  },
  {
    name: "a replica gets the prompts whose prefix it has, however busy it is",
    file: "src/server/replicas/router.ts",
    find: "matched > 0 && load <= most(matched))",
    replace: "matched > 0 && load <= Infinity)",
    tests: ROUTER_TESTS,
  },
  {
    name: "requests of a replica count after their end",
    file: "src/server/replicas/router.ts",
    find: "if (open) known.load--;",
    replace: "if (!open) known.load--;",
    tests: ROUTER_TESTS,
  },
  {
    name: "a stream that broke off goes on with the answer of another replica",
    file: "src/server/replicas/forward.ts",
    find: "if (isAnswer(piece)) sent = piece;",
    replace: "if (!isAnswer(piece)) sent = piece;",
    tests: REPLICAS_TESTS,
  },
  {
    name: "a part of an event is sent",
    file: "src/server/replicas/forward.ts",
    find: "const end = rest.lastIndexOf(separator);",
    replace: "const end = rest.length - separator.length;",
    tests: REPLICAS_TESTS,
  },
  {
    name: "a replica that does not answer is left alone",
    file: "src/server/replicas/fleet.ts",
    find: "return process.kill();",
    replace: "return;",
    tests: REPLICAS_TESTS,
  },
  {
    name: "sums lose the counts of a replica that has ended",
    file: "src/server/replicas/metrics.ts",
    find: "if (before && before.process !== process) this.#keep(before);",
    replace: "if (before && before.process === process) this.#keep(before);",
    tests: REPLICAS_TESTS,
  },
  {
    name: "a response is continued by a replica that does not keep it",
    file: "src/server/replicas/front.ts",
    find: "({ reply }) => reply.status === 200)?.reply.replica",
    replace: "({ reply }) => reply.status !== 200)?.reply.replica",
    tests: ["tests/server/replicas_answers_test.ts"],
  },
] as const satisfies readonly Mutant[];
