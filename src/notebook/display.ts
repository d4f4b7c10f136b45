/**
 * An output of a notebook's cell that changes in place.
 *
 * @module
 */

import { broadcast } from "../../ffi/notebook.ts";

/** One output of the running cell. */
export class CellDisplay {
  readonly #id = crypto.randomUUID();
  #shown = false;
  #sent: Promise<void> = Promise.resolve();

  /** Shows the forms of something by their MIME types, in place of the earlier forms. A message that is lost stops no work. */
  show(data: Readonly<Record<string, unknown>>): void {
    const type = this.#shown ? "update_display_data" : "display_data";
    this.#shown = true;
    const content = { data, metadata: {}, transient: { display_id: this.#id } };
    this.#sent = this.#sent.then(() => broadcast(type, content)).catch(() => {});
  }
}
