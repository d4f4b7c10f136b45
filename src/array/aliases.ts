/**
 * Second names of functions, as MLX and the array API standard have them. Errors name the function by its first name.
 *
 * @module
 */

export {
  arccos as acos,
  arccosh as acosh,
  arcsin as asin,
  arcsinh as asinh,
  arctan as atan,
  arctanh as atanh,
} from "./ops/unary.ts";
export {
  arctan2 as atan2,
  leftShift as bitwiseLeftShift,
  power as pow,
  rightShift as bitwiseRightShift,
} from "./ops/binary.ts";
export { concatenate as concat } from "./ops/join.ts";
export { cumprod as cumulativeProd, cumsum as cumulativeSum, variance as var } from "./ops/reduce.ts";
