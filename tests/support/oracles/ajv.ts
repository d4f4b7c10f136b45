/**
 * ajv, the judge of answers: it shares nothing with the grammars. npm has it, so tests that need "ajv" of needs.ts import this file when they run.
 *
 * @module
 */

import { Ajv2020 } from "npm:ajv@8.20.0/dist/2020.js";
import addFormats from "npm:ajv-formats@3.0.1";

/** Why a value does not fit; undefined where it does. */
export type Judge = (value: unknown) => string | undefined;

const ajv = new Ajv2020({ strict: false, ownProperties: true, logger: false });
// The package's types are those of a module, which it is not for Deno.
(addFormats as unknown as (to: Ajv2020) => void)(ajv);

const judges = new Map<unknown, Judge>();

/** The judge of a schema of draft 2020-12. */
export function judgeOf(schema: unknown): Judge {
  const known = judges.get(schema);
  if (known) return known;
  const validate = ajv.compile(schema as object | boolean);
  const judge = (value: unknown): string | undefined => validate(value) ? undefined : ajv.errorsText(validate.errors);
  judges.set(schema, judge);
  return judge;
}
