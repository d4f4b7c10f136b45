/** Mistakes in the server: src/server. */

import type { Mutant } from "./mutant.ts";

const CHAT_TESTS = ["tests/server/chat_completions_test.ts", "tests/server/completions_test.ts"] as const;
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
] as const satisfies readonly Mutant[];
