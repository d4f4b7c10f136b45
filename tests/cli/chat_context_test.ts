/** The prompt of a conversation for a model whose context is full: the system message and the newest turns. */

import { assert, assertEquals } from "@std/assert";
import type * as mx from "../../mod.ts";
import { Chat } from "../../src/cli/chat/chat.ts";
import type { Input } from "../../src/cli/chat/input.ts";
import { freeModel, loadModel } from "../../src/cli/chat/session.ts";

/** Notes that work writes to stderr. */
async function notesOf(work: () => Promise<void>): Promise<string> {
  const { writeSync } = Deno.stderr;
  let written = "";
  Deno.stderr.writeSync = (bytes) => {
    written += new TextDecoder().decode(bytes);
    return bytes.length;
  };
  try {
    await work();
  } finally {
    Deno.stderr.writeSync = writeSync;
  }
  return written;
}

Deno.test("a full context leaves out the oldest turns, and keeps the system message and what the cache holds", async () => {
  const { signal } = new AbortController();
  const loaded = await loadModel("tiny-qwen3", { place: { device: "wasm" }, signal });
  const { tokenizer, model } = loaded;
  const told: mx.lm.ChatMessage[][] = [];
  const encode = tokenizer.encodeChat.bind(tokenizer);
  tokenizer.encodeChat = (messages, options) => {
    told.push([...messages]);
    return encode(messages, options);
  };
  const system = "Be kind.";
  const chat = new Chat({ interactive: false, signal } as Input, loaded, {
    place: { device: "wasm" },
    adapterPath: undefined,
    system,
    settingsFor: () => ({ temp: 0, maxTokens: 4, enableThinking: false }),
    json: true,
    stats: false,
  });
  const size = 128;
  Object.defineProperty(chat, "contextSize", { value: size });
  const { writeSync } = Deno.stdout;
  Deno.stdout.writeSync = (bytes) => bytes.length;
  const cut = /the model is not told of the first (\d+) messages/;
  const drops: number[] = [];
  try {
    for (let turn = 0; turn < 12; turn++) {
      const notes = await notesOf(() => chat.say(`What is ${turn} + ${turn}? Please tell me.`));
      const prompt = told.at(-1)!; // the text that streamGenerate() encodes comes last
      assertEquals(prompt[0], { role: "system", content: system });
      assertEquals(prompt.at(-1)!.content, `What is ${turn} + ${turn}? Please tell me.`);
      assertEquals(prompt[1].role, "user");
      assert(encode(prompt, { enableThinking: false }).length + 4 <= size);
      const [, count] = cut.exec(notes) ?? [];
      if (count === undefined) continue;
      drops.push(turn);
      assertEquals(prompt, [prompt[0], ...chat.messages.slice(Number(count), -1)]);
      assert(encode(prompt, { enableThinking: false }).length <= size / 2);
    }
    assert(drops.length >= 2 && drops[1] - drops[0] >= 2, `dropped at ${drops}`);
    assertEquals(chat.messages.length, 24); // all of it is kept for /save
    assertEquals(chat.undo(), true);
    assertEquals(chat.messages.length, 22);
    await chat.retry();
    assertEquals(chat.messages.length, 22);
    assertEquals(told.at(-1)!.at(-1)!.content, "What is 10 + 10? Please tell me.");
  } finally {
    Deno.stdout.writeSync = writeSync;
    tokenizer.encodeChat = encode;
    freeModel(loaded);
  }
  assert(model.config.maxPositionEmbeddings > size);
});
