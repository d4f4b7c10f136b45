/**
 * An answer as a list of blocks, each a thought, a text or a call: the form of /v1/responses and of Anthropic's messages.
 *
 * @module
 */

import type { AnswerEnd, AnswerPart } from "./answer.ts";

/** A part of an answer, which has one kind. Of a call, the text is that of the arguments. */
export interface Block {
  readonly kind: "reasoning" | "text" | "call";
  text: string;
  /** Of a call. */
  readonly callId: string;
  readonly name: string;
}

/** What happens to blocks, in order: one begins only after the one before has ended. */
export type BlockEvent =
  | { readonly type: "begin"; readonly promptTokens: number; readonly cachedTokens: number }
  | { readonly type: "start" | "stop"; readonly index: number; readonly block: Block }
  | { readonly type: "delta"; readonly index: number; readonly block: Block; readonly text: string }
  | { readonly type: "end"; readonly blocks: readonly Block[]; readonly end: AnswerEnd };

/** The blocks of an answer as they come. */
export async function* blockEvents(
  parts: AsyncGenerator<AnswerPart, void, void>,
): AsyncGenerator<BlockEvent, void, void> {
  const blocks: Block[] = [];
  let open: Block | undefined;
  function* stop(): Generator<BlockEvent, void, void> {
    if (open) yield { type: "stop", index: blocks.length - 1, block: open };
    open = undefined;
  }
  function* add(kind: Block["kind"], text: string, callId = "", name = ""): Generator<BlockEvent, void, void> {
    if (text === "") return;
    if (open?.kind !== kind || kind === "call") {
      yield* stop();
      open = { kind, text: "", callId, name };
      blocks.push(open);
      yield { type: "start", index: blocks.length - 1, block: open };
    }
    open.text += text;
    yield { type: "delta", index: blocks.length - 1, block: open, text };
  }
  let begun = false;
  for await (const { reasoning, text, calls, promptTokens, cachedTokens, end } of parts) {
    if (!begun) yield { type: "begin", promptTokens, cachedTokens };
    begun = true;
    yield* add("reasoning", reasoning);
    yield* add("text", text);
    for (const { id, name, arguments: given } of calls) yield* add("call", given, id, name);
    if (!end) continue;
    yield* stop();
    yield { type: "end", blocks, end };
  }
}
