/**
 * All planted mistakes, by area. They measure how much the shorter tests of the gate still find. So most
 * were chosen before the tests were split into the gate and a full run. Those of the engine, the server, pages and answers are later.
 *
 * @module
 */

import { ARRAYS } from "./arrays.ts";
import { CLI } from "./cli.ts";
import { ENGINE } from "./engine.ts";
import { FILES } from "./files.ts";
import { GENERATION } from "./generation.ts";
import { GLSL } from "./glsl.ts";
import { LOWERING } from "./lowering.ts";
import { type Area, AREAS, type Mutant } from "./mutant.ts";
import { NN } from "./nn.ts";
import { RUNTIME } from "./runtime.ts";
import { SERVER } from "./server.ts";
import { TABLES } from "./tables.ts";
import { TEMPLATES } from "./templates.ts";
import { TOKENIZER } from "./tokenizer.ts";
import { TRAINING } from "./training.ts";
import { TRANSFORMS } from "./transforms.ts";
import { WASM } from "./wasm.ts";

const BY_AREA: Readonly<Record<Area, readonly Mutant[]>> = {
  lowering: LOWERING,
  arrays: ARRAYS,
  transforms: TRANSFORMS,
  runtime: RUNTIME,
  wasm: WASM,
  glsl: GLSL,
  tables: TABLES,
  tokenizer: TOKENIZER,
  templates: TEMPLATES,
  cli: CLI,
  files: FILES,
  generation: GENERATION,
  engine: ENGINE,
  server: SERVER,
  nn: NN,
  training: TRAINING,
};

/** A mistake and its area. */
export interface PlacedMutant extends Mutant {
  /** The part of the project that it is in. */
  readonly area: Area;
}

/** All mistakes, in the order of {@link AREAS}. */
export const MUTANTS: readonly PlacedMutant[] = AREAS.flatMap((area) =>
  BY_AREA[area].map((mutant) => ({ area, ...mutant }))
);
