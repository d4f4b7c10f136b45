/**
 * A plot, in each form that a notebook may show; forms are made when they are read.
 *
 * @module
 */

import { writeWhole } from "../../ffi/file.ts";
import { ValueError } from "../graph/error.ts";
import type { Figure } from "./figure.ts";
import { toSvg } from "./svg.ts";
import { toText } from "./text.ts";
import { toVegaLite, VEGA_LITE, type VegaLite } from "./vega.ts";

/** A picture of numbers: a cell of a notebook shows it, and so does `console.log(plot)` as text. */
export class Plot {
  readonly #figure: Figure;
  #svg: string | undefined;

  /** Of what the functions of `mx.plot` have put together. */
  constructor(figure: Figure) {
    this.#figure = figure;
  }

  /** The text of an SVG file. */
  get svg(): string {
    return this.#svg ??= toSvg(this.#figure);
  }

  /** A Vega-Lite specification. */
  get vegaLite(): VegaLite {
    return toVegaLite(this.#figure);
  }

  /** The plot in letters. */
  toString(): string {
    return toText(this.#figure);
  }

  /** Writes an SVG file. The name must end in ".svg". */
  save(path: string): void {
    if (typeof path !== "string" || !path.endsWith(".svg")) {
      throw new ValueError('save() writes SVG: expected a name that ends in ".svg"');
    }
    writeWhole(path, [new TextEncoder().encode(this.svg)]);
  }

  /** Text in Deno's console. */
  [Symbol.for("Deno.customInspect")](): string {
    return this.toString();
  }

  /** Text in Node's console. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }

  /** All forms by their MIME types, of which a notebook takes the one that it likes best. */
  get forms(): Record<string, unknown> {
    return { [VEGA_LITE]: this.vegaLite, "image/svg+xml": this.svg, "text/plain": this.toString() };
  }

  /** The output in a notebook. */
  [Symbol.for("Jupyter.display")](): Record<string, unknown> {
    return this.forms;
  }
}
