/**
 * Language models: loading them and generating text, also in notebooks, whose interrupts end what takes long and whose cells show how
 * far it is. Available as `mx.lm`.
 *
 * @example
 * ```ts ignore
 * import * as mx from "@vkmx/vkmx";
 *
 * const { model, tokenizer } = await mx.lm.load("models/Qwen3-0.6B-MLX-4bit");
 * await mx.lm.print(mx.lm.streamGenerate(model, tokenizer, "Once upon a time", { maxTokens: 100 }));
 * ```
 *
 * @module
 */

import { setHost } from "./llm/host.ts";
import { NOTEBOOK } from "./notebook/host.ts";

export * from "./llm/mod.ts";
export { print, type Printable, type Printed } from "./notebook/print.ts";

setHost(NOTEBOOK);
