/**
 * Gives the methods of Tensor the functions that they call; mod.ts imports it for that. Types see to it that none is missing.
 *
 * @module
 */

import * as complex from "./complex.ts";
import * as binary from "./binary.ts";
import * as indexing from "./indexing.ts";
import * as join from "./join.ts";
import * as movement from "./movement.ts";
import * as products from "./products.ts";
import * as reduce from "./reduce.ts";
import { reshape } from "./reshape.ts";
import * as sort from "./sort.ts";
import { installOperations } from "./tensor.ts";
import * as unary from "./unary.ts";
import { view } from "./view.ts";

installOperations({
  ...unary,
  ...binary,
  ...reduce,
  ...sort,
  ...products,
  ...movement,
  reshape,
  ...join,
  ...indexing,
  ...complex,
  view,
});
