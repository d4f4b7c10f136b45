/**
 * `mx.cuda`: the backend of MLX that is not here, so that programs which ask get an answer.
 *
 * @module
 */

/** Whether arrays run through CUDA: never. */
export function isAvailable(): boolean {
  return false;
}
