/**
 * Makes an input that shows a finding as short as it gets: delta debugging on bytes (Zeller and Hildebrandt, 2002).
 *
 * @module
 */

/** How long it may take. */
export interface Effort {
  /** Most inputs to try. */
  readonly tries: number;
  /** Most milliseconds. */
  readonly milliseconds: number;
}

/** The shortest input found that `shows` what `bytes` show: parts are left out as long as that holds, large ones first. */
export async function minimise(
  bytes: Uint8Array,
  shows: (bytes: Uint8Array) => Promise<boolean>,
  effort: Effort,
): Promise<Uint8Array> {
  const end = performance.now() + effort.milliseconds;
  let tries = effort.tries;
  for (let parts = 2; bytes.length > 1;) {
    const size = Math.ceil(bytes.length / parts);
    let cut = false;
    for (let at = 0; at < bytes.length; at += size) {
      if (tries-- <= 0 || performance.now() > end) return bytes;
      const shorter = new Uint8Array([...bytes.subarray(0, at), ...bytes.subarray(at + size)]);
      if (!await shows(shorter)) continue;
      bytes = shorter;
      at -= size; // the next part has moved here
      cut = true;
    }
    if (!cut && size === 1) break;
    parts = cut ? Math.max(2, Math.ceil(bytes.length / size)) : Math.min(bytes.length, 2 * parts);
  }
  return bytes;
}
