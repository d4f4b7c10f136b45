/**
 * The names of the models that a server offers.
 *
 * @module
 */

import { quoted } from "../graph/error.ts";
import { ApiError } from "./errors.ts";

/** A model by name. */
export interface NamedModel {
  /** The name that requests have. */
  readonly id: string;
  /** Seconds since 1970 when the server began to offer it. */
  readonly created: number;
}

/** Names of models; the first is the one of requests that name none. */
export class ModelNames {
  /** All of them. */
  readonly all: readonly NamedModel[];

  /** Offers models from now on. */
  constructor(ids: readonly string[]) {
    const created = Math.floor(Date.now() / 1000);
    this.all = ids.map((id) => ({ id, created }));
  }

  /** The name of a request's model, default the first. Throws an ApiError if there is no such model. */
  resolve(id: string | undefined): string {
    const found = id ?? this.all[0].id;
    if (this.all.some((model) => model.id === found)) return found;
    throw new ApiError(404, `There is no model ${quoted(found)}: GET /v1/models lists all`, {
      code: "model_not_found",
      param: "model",
    });
  }
}
