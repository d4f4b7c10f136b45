/** Calls of a host of language models, such as a notebook: it interrupts work and shows its progress. */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type Host, host, setHost } from "../../../src/llm/host.ts";
import type { DecodingModel } from "../../../src/llm/models/mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { TINY_DIR } from "../../support/models/models.ts";
import { wrapped } from "../../support/models/wrapped_model.ts";

/** A host that counts what runs, and notes what it was asked to show. */
class Recorder implements Host {
  readonly controller: AbortController = new AbortController();
  readonly shown: string[] = [];
  running = 0;
  most = 0;

  interrupt(): ReturnType<Host["interrupt"]> {
    const begin = (): Disposable => {
      this.most = Math.max(this.most, ++this.running);
      return { [Symbol.dispose]: () => void this.running-- };
    };
    return { signal: this.controller.signal, begin };
  }

  untilInterrupted<T>(promise: Promise<T>): Promise<T> {
    return promise;
  }

  progress(label: string): (done: number, total: number) => void {
    return (done, total) => void (done === total && this.shown.push(label));
  }

  output(): undefined {
    return undefined;
  }
}

/** Runs `test` in a host. */
async function hosted(test: (recorder: Recorder) => Promise<void>): Promise<void> {
  const before = host();
  const recorder = new Recorder();
  setHost(recorder);
  try {
    await test(recorder);
  } finally {
    setHost(before);
  }
}

const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device: anyDevice() });
const PROMPT = "Once upon a time";

Deno.test("a host's interrupt ends a generation with its reason, before and after the first token", () =>
  hosted(async (recorder) => {
    const reason = new Error("interrupted");
    const stream = mx.lm.streamGenerate(model, tokenizer, PROMPT, { maxTokens: 50 });
    assertEquals(recorder.running, 0, "nothing runs before somebody asks");
    assert(!(await stream.next()).done);
    assertEquals(recorder.running, 1);
    recorder.controller.abort(reason);
    const found = await assertRejects(async () => {
      for await (const _ of stream);
    });
    assertEquals(found, reason);
    assertEquals(recorder.running, 0);
    assertEquals(await assertRejects(() => mx.lm.generate(model, tokenizer, PROMPT, { maxTokens: 3 })), reason);
    assertEquals([recorder.running, recorder.most], [0, 1]);
  }));

Deno.test("a host shows how far loading is, unless the caller does", () =>
  hosted(async (recorder) => {
    const own: number[] = [];
    for (const onProgress of [undefined, (done: number) => void own.push(done)]) {
      const loaded = await mx.lm.load(TINY_DIR, { device: anyDevice(), onProgress });
      loaded.model[Symbol.dispose]();
    }
    assertEquals(recorder.shown, ["Loading"]);
    assert(own.length > 0);
    assertEquals(recorder.running, 0);
  }));

Deno.test("a model that is not of load() is refused", async () => {
  const other = wrapped(model, { traces: {} as DecodingModel["traces"] });
  const stream = mx.lm.streamGenerate(other, tokenizer, PROMPT);
  await assertRejects(() => stream.next(), mx.lm.LlmError, "expected the model that load() returns");
});

Deno.test({ name: "the model goes", fn: () => model[Symbol.dispose]() });
