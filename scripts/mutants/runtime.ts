/** Mistakes in the native library: runtime-c. */

import type { Mutant } from "./mutant.ts";

const PLAN_TESTS = ["tests/runtime/ffi_plan_test.ts", "tests/runtime/ffi_forged_test.ts"] as const;

export const RUNTIME = [
  {
    name: "no barrier stands between a read and a write of the same slot",
    file: "runtime-c/plan/hazards.c",
    find: "return read && writes;",
    replace: "return read && writes && !disjoint;",
    tests: ["tests/runtime/ffi_plan_test.ts", "tests/runtime/profile_test.ts"],
  },
  {
    name: "two slots of one place are tracked apart, so that a barrier is missing",
    file: "runtime-c/plan/record.c",
    find: "bindings[i].hazard = table[at] - 1;",
    replace: "bindings[i].hazard = i;",
    tests: ["tests/runtime/ffi_plan_test.ts", "tests/ops/tensor/in_place_test.ts"],
  },
  {
    name: "a slot may reach beyond the end of its buffer",
    file: "runtime-c/plan/recording.c",
    find: "if (offset >= buffer->bytes || plan->reach[i] > buffer->bytes - offset)",
    replace: "if (offset >= buffer->bytes)",
    tests: PLAN_TESTS,
  },
  {
    name: "a workgroup of no threads is accepted",
    file: "runtime-c/plan/plan.c",
    find: "if (spec[axis] == 0 || spec[axis] > longest)",
    replace: "if (spec[axis] > longest)",
    tests: PLAN_TESTS,
  },
  {
    name: "an entry of a table may name the slot after the last one",
    file: "runtime-c/plan/plan.c",
    find: "if (out->table[2 * i] >= r->slots)",
    replace: "if (out->table[2 * i] > r->slots)",
    tests: PLAN_TESTS,
  },
  {
    name: "memory that is taken from the cache still counts as cached",
    file: "runtime-c/memory.c",
    find: "    m->cached -= c->first->size;\n",
    replace: "",
    tests: ["tests/runtime/memory_test.ts", "tests/runtime/ffi_test.ts"],
  },
  {
    name: "a handle of a freed object names the next one",
    file: "runtime-c/handles.c",
    find: "    entry->generation = (entry->generation + 1) & GENERATION_MASK;\n",
    replace: "",
    tests: ["tests/runtime/ffi_test.ts", "tests/runtime/ffi_forged_test.ts"],
  },
] as const satisfies readonly Mutant[];
