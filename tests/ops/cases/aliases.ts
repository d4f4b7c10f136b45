/**
 * Second names of functions: the rows of the first name, run by the second.
 */

import type { Library } from "./case.ts";
import type { Families, Family } from "./family.ts";

/** Second names and the first ones. */
const ALIASES = {
  acos: "arccos",
  acosh: "arccosh",
  asin: "arcsin",
  asinh: "arcsinh",
  atan: "arctan",
  atan2: "arctan2",
  atanh: "arctanh",
  bitwiseLeftShift: "leftShift",
  bitwiseRightShift: "rightShift",
  concat: "concatenate",
  cumulativeProd: "cumprod",
  cumulativeSum: "cumsum",
  pow: "power",
  var: "variance",
} as const satisfies Partial<Record<keyof Library, keyof Library>>;

/** The families of second names, from those of the first ones. */
export function aliases(families: ReadonlyMap<string, Family>): Families {
  return Object.fromEntries(
    Object.entries(ALIASES).map(([second, first]): [string, Family] => [second, (d) => {
      const drawn = families.get(first)!(d);
      return {
        ...drawn,
        run: (mx, x) => drawn.run({ ...mx, [first]: mx[second as keyof Library] } as Library, x),
      };
    }]),
  );
}
