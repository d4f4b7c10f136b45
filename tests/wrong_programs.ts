/**
 * Programs that are wrong: what `deno check` says of them, by its code, and what they end with when they run all the same. `check`
 * is absent where types cannot know; `error` is absent where the program runs to its end.
 *
 * @module
 */

/** A wrong program. */
export interface WrongProgram {
  /** Its text; `mx`, `x` (2, 3) of float32, `model` and `tokenizer` are there. */
  readonly program: string;
  /** Code of what `deno check` finds. */
  readonly check?: `TS${number}`;
  /** Its error: the name of the class and the message. The text after "…" depends on the machine. */
  readonly error?: string;
}

/** The programs. */
export const WRONG_PROGRAMS: readonly WrongProgram[] = [
  { "program": "const text: string = x.sum().item(); text;", "check": "TS2322" },
  { "program": "const rows: number[] = x.tolist(); rows;", "check": "TS2322" },
  { "program": "const flag: number = mx.all(x).item(); flag;", "check": "TS2322" },
  { "program": 'const m: mx.Tensor<"float32", 3> = mx.matmul(x, x.T); m;', "check": "TS2322" },
  {
    "program": 'mx.array("12");',
    "check": "TS2345",
    "error":
      "DtypeError: array() expected an array, number, boolean, bigint, complex number, list or typed array: found string",
  },
  {
    "program": "mx.array([[1, 2], [3]]);",
    "error": "ShapeError: array() expected lists of one length at each depth: found 1 beside 2",
  },
  {
    "program": 'mx.array([1, "2"]);',
    "check": "TS2322",
    "error": "DtypeError: array() expected numbers, booleans, bigints or complex numbers in a list: found string",
  },
  {
    "program": 'mx.array([1, 2], "int32");',
    "check": "TS2345",
    "error": 'DtypeError: array() expected a dtype such as mx.float32: found "int32", which is a string: use mx.int32',
  },
  {
    "program": 'mx.zeros("2");',
    "check": "TS2345",
    "error": "ShapeError: zeros() expected a list of sizes: found string",
  },
  {
    "program": "mx.zeros([2, -1]);",
    "error": "ShapeError: zeros() expected sizes that are whole and not negative: found (2, -1)",
  },
  {
    "program": "mx.zeros([1.5]);",
    "error": "ShapeError: zeros() expected sizes that are whole and not negative: found (1.5,)",
  },
  { "program": "mx.arange(0, 10, 0);", "error": "ValueError: arange() expected a step that is not 0" },
  {
    "program": "x + 1;",
    "check": "TS2365",
    "error": "ValueError: operators do not work on arrays: use mx.add(a, b) and the like, or item() for one number",
  },
  {
    "program": "mx.add(x);",
    "check": "TS2554",
    "error":
      "DtypeError: add() expected an array, number, boolean, bigint, complex number, list or typed array: found undefined",
  },
  {
    "program": 'mx.add(x, "1");',
    "check": "TS2345",
    "error":
      "DtypeError: add() expected an array, number, boolean, bigint, complex number, list or typed array: found string",
  },
  { "program": "mx.add(x, mx.ones([4]));", "error": "ShapeError: add() cannot broadcast shapes (2, 3) and (4,)" },
  {
    "program": "mx.matmul(x, x);",
    "error": "ShapeError: matmul() cannot multiply (2, 3) by (2, 3): inner or batch sizes differ",
  },
  { "program": "x.reshape(7);", "error": "ShapeError: reshape() cannot reshape (2, 3) to (7,): sizes differ" },
  { "program": "x.reshape(-1, -1);", "error": "ShapeError: reshape() cannot reshape (2, 3) to (-1, -1): sizes differ" },
  { "program": "x.item();", "error": "ShapeError: item() expected an array of one element: found shape (2, 3)" },
  {
    "program": "x.index(5).eval();",
    "check": "TS2339",
    "error": "IndexError: index() index 5 is out of range for axis 0 of size 2",
  },
  { "program": "x.index(0, 0, 0);", "error": "IndexError: index() got 3 indices for an array of shape (2, 3)" },
  { "program": "x.index(2);", "error": "IndexError: index() index 2 is out of range for axis 0 of size 2" },
  {
    "program": 'x.index("0");',
    "check": "TS2345",
    "error": 'IndexError: index() takes whole numbers, mx.Slice(), null, "..." and integer arrays: found "0"',
  },
  { "program": "x.index(0.5);", "error": "IndexError: index() index 0.5 is out of range for axis 0 of size 2" },
  {
    "program": 'x.sum("0");',
    "check": "TS2345",
    "error": 'ValueError: sum() expected a whole number for an axis: found "0"',
  },
  { "program": "x.sum(2);", "error": "IndexError: sum() axis 2 is out of range for an array of shape (2, 3)" },
  {
    "program": "x.sum({ axis: 0 });",
    "check": "TS2353",
    "error": 'ValueError: sum() expected a whole number for an axis: found {"axis":0}',
  },
  {
    "program": "x.transpose(0, 0);",
    "error": "ValueError: transpose() expected each axis of (2, 3) once: found (0, 0)",
  },
  {
    "program": 'x.astype("float16");',
    "check": "TS2345",
    "error":
      'DtypeError: astype() expected a dtype such as mx.float32: found "float16", which is a string: use mx.float16',
  },
  { "program": "x.astyp(mx.float16);", "check": "TS2551", "error": "TypeError: x.astyp is not a function" },
  {
    "program": "x.shape = [3, 2];",
    "check": "TS2540",
    "error": "TypeError: Cannot set property shape of [object Object] which has only a getter",
  },
  { "program": "mx.sofmax(x);", "check": "TS2551", "error": "TypeError: mx.sofmax is not a function" },
  {
    "program": "mx.softmax(x, { axis: 1 });",
    "check": "TS2353",
    "error": 'ValueError: softmax() expected a whole number for an axis: found {"axis":1}',
  },
  {
    "program": 'mx.nn.losses.crossEntropy(x, [0, 2], { reduction: "mean" });',
    "check": "TS2353",
    "error":
      'ValueError: crossEntropy() takes no object of options: found {"reduction":"mean"} for weights, in crossEntropy(logits, targets, weights, axis, labelSmoothing, reduction)',
  },
  {
    "program": "let w = mx.zeros([3]); w = w.reshape(3, 1); w;",
    "check": "TS2322",
  },
  {
    "program": 'const v: number[] = mx.einsum("ij,jk->ik", x, x.T).tolist(); v;',
    "check": "TS2322",
  },
  {
    "program": "mx.concatenate(x, x);",
    "check": "TS2345",
    "error": "ValueError: concatenate() expected a list of arrays, such as concatenate([a, b]): found Tensor",
  },
  {
    "program": "mx.concatenate([x, mx.ones([2])]);",
    "error": "ShapeError: concatenate() cannot join (2, 3) and (2,) along axis 0",
  },
  { "program": "mx.concatenate([]);", "error": "ValueError: concatenate() expected at least one array" },
  { "program": "mx.split(x, 2, 1);", "error": "ShapeError: split() cannot cut axis 1 of (2, 3) into 2 equal pieces" },
  {
    "program": "mx.take(x, [0.5], 0);",
    "error": "DtypeError: take() expected integer indices: found a number that is not whole",
  },
  {
    "program": "mx.cumsum(x, 0, { revers: true });",
    "check": "TS2561",
    "error":
      'ValueError: cumsum() has no option "revers", did you mean "reverse"? Its options are: reverse, inclusive, dtype',
  },
  {
    "program": "mx.random.normal({ shape: [2] });",
    "check": "TS2353",
    "error": "ShapeError: normal() expected a list of sizes: found Object",
  },
  {
    "program": "mx.random.randint(0, 5, [2], mx.float32);",
    "error": "DtypeError: randint() makes integers and bool only: found float32",
  },
  {
    "program": "mx.fast.rmsNorm(x, mx.ones([2]), 1e-5);",
    "error": "ShapeError: rmsNorm() expected weight to be a vector as long as the last axis of (2, 3): found (2,)",
  },
  {
    "program": "mx.fast.rope(mx.ones([1, 2, 4]), 4, { scal: 2 });",
    "check": "TS2561",
    "error":
      'ValueError: rope() has no option "scal", did you mean "scale"? Its options are: traditional, base, scale, offset, freqs',
  },
  {
    "program": "mx.quantize(x);",
    "error": "ShapeError: quantize() expected the last axis to be divisible by groupSize 64: found shape (2, 3)",
  },
  {
    "program": "mx.quantize(mx.ones([2, 64]), 64, 7);",
    "error": "ValueError: quantize() expected bits to be one of 1, 2, 3, 4, 5, 6, 8: found 7",
  },
  {
    "program": 'mx.setDefaultDevice("cuda");',
    "error": 'RuntimeError: setDefaultDevice(): there is no device "cuda"; there are …',
  },
  {
    "program": 'mx.withDevice("vulkan:99", () => 1);',
    "error": 'RuntimeError: withDevice(): there is no device "vulkan:99"; there are …',
  },
  { "program": 'mx.load("missing.safetensors");', "error": "ArrayError: missing.safetensors: does not exist" },
  {
    "program": "{ using y = mx.ones([1]); y.dispose(); y.tolist(); }",
    "error": "ArrayError: the array was disposed and cannot be used",
  },
  { "program": "mx.compile(3);", "check": "TS2345", "error": "ValueError: compile() expected a function: found 3" },
  {
    "program": "await mx.lm.load();",
    "check": "TS2554",
    "error": "LlmError: load() expected a model directory: found undefined",
  },
  {
    "program": 'await mx.lm.load("no/such-folder/here");',
    "error":
      "LlmError: The model directory no/such-folder/here does not exist, and models of the hub have names such as Qwen/Qwen3-0.6B",
  },
  {
    "program": 'await mx.lm.load("model.gguf");',
    "error": "LlmError: model.gguf: does not exist",
  },
  {
    "program": 'await mx.lm.load("anywhere", { divice: "cpu" });',
    "check": "TS2561",
    "error": 'LlmError: load() has no option "divice", did you mean "device"? Its options are: …',
  },
  {
    "program": 'await mx.lm.load("anywhere", { dtype: "float16" });',
    "check": "TS2322",
    "error": "LlmError: load() expected a dtype such as mx.float16: found float16",
  },
  { "program": 'const { model: m } = mx.lm.load("anywhere"); m;', "check": "TS2339" },
  {
    "program": 'await mx.lm.generate(tokenizer, model, "Hi");',
    "check": "TS2345",
    "error": "LlmError: generate(model, tokenizer, …) expected the model that load() returns: found another object",
  },
  {
    "program": 'await mx.lm.generate(model, "Hi");',
    "check": "TS2554",
    "error": 'LlmError: generate(model, tokenizer, …) expected the tokenizer that load() returns: found "Hi"',
  },
  { "program": 'await mx.lm.generate(model, tokenizer, "");', "error": "LlmError: The prompt is empty" },
  {
    "program": 'await mx.lm.generate(model, tokenizer, "Hi", { temperature: 0.5 });',
    "check": "TS2353",
    "error": 'LlmError: generate() has no option "temperature", did you mean "temp"? Its options are: …',
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, "Hi", { max_tokens: 5 });',
    "check": "TS2561",
    "error": 'LlmError: generate() has no option "max_tokens", did you mean "maxTokens"? Its options are: …',
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, "Hi", { maxTokens: 0 });',
    "error": "LlmError: maxTokens is 0, expected a positive integer",
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, "Hi", { maxTokens: "5" });',
    "check": "TS2322",
    "error": 'LlmError: maxTokens is "5", expected a number',
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, "Hi", { temp: -1 });',
    "error": "LlmError: temp is -1, expected a number from 0 to 100",
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, "Hi", { topP: 2 });',
    "error": "LlmError: topP is 2, expected a number from 0 to 1",
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, "Hi", 50);',
    "check": "TS2559",
    "error": "LlmError: generate() expected an object with options (…",
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, "Hi", { stop: 5 });',
    "check": "TS2322",
    "error": "LlmError: stop is 5, expected a text or a list of texts",
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, "Hi", { signal: 5 });',
    "check": "TS2322",
    "error": "LlmError: signal is 5, expected the signal of an AbortController",
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, [{ role: "robot", content: "Hi" }]);',
    "check": "TS2322",
    "error": 'LlmError: messages[0].role is "robot", expected system, developer, user, assistant, tool',
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, [{ role: "user", text: "Hi" }]);',
    "check": "TS2353",
    "error": "LlmError: messages[0] of the user has no content",
  },
  {
    "program": 'await mx.lm.generate(model, tokenizer, { role: "user", content: "Hi" });',
    "check": "TS2353",
    "error": "LlmError: The prompt is neither a text nor a list of token ids or messages",
  },
  {
    "program": "await mx.lm.generate(model, tokenizer, [1, 2, 99999]);",
    "error": "LlmError: The prompt has token id 99999, the vocabulary ends at 4095",
  },
  {
    "program": 'for await (const text of mx.lm.streamGenerate(model, tokenizer, "Hi", { maxTokens: 1 })) text.trim();',
    "check": "TS2339",
    "error": "TypeError: text.trim is not a function",
  },
  {
    "program": 'const text: string = mx.lm.generate(model, tokenizer, "Hi", { maxTokens: 1 }); text;',
    "check": "TS2322",
  },
  {
    "program": 'await mx.lm.batchGenerate(model, tokenizer, "Hi");',
    "check": "TS2345",
    "error": "LlmError: The prompts are no list: generate() takes a single one",
  },
  {
    "program": 'await mx.lm.batchGenerate(model, tokenizer, ["Hi"], { maxTokens: [1, 2] });',
    "error": "LlmError: maxTokens has 2 values for 1 prompts",
  },
  {
    "program": "model.forward([1, 2, 3]);",
    "check": "TS2345",
    "error": "LlmError: forward() expected an array of token ids: found [1,2,3]",
  },
  {
    "program": "model.forward(mx.array([1, 2, 3]));",
    "error":
      "ShapeError: forward() expected token ids of shape (batch, tokens), found (3): tokens.reshape(1, -1) is a batch of one",
  },
  { "program": "tokenizer.encode(5);", "check": "TS2345", "error": "LlmError: encode() expected a text: found 5" },
];
