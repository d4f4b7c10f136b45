/**
 * Trains a small transformer, a language model of characters, from nothing: it reads sentences of a little grammar and writes new ones.
 *
 *     deno run -A examples/train_transformer.ts
 *
 * The sentences are made here, so it needs no files and no network. The lowest possible loss is known: no model gets below the logarithms
 * of the choices that the grammar made. A model that has learned the grammar comes close.
 *
 * @module
 */

import * as mx from "../mod.ts";

/** The words at each place of a sentence. */
const GRAMMAR = [
  ["the", "a", "my", "your"],
  ["small", "old", "quick", "red"],
  ["cat", "bird", "fox", "mouse", "dog"],
  ["sees", "finds", "likes", "follows"],
  ["the", "a"],
  ["house", "river", "tree", "garden", "moon"],
] as const;

/** Sentences, and the mean of -log p of a character of them: what a model would lose that knows the grammar. */
function write(sentences: number): [text: string, entropy: number] {
  const draws = GRAMMAR.map((words) => mx.random.randint(0, words.length, [sentences]).tolist() as number[]);
  const lines = Array.from({ length: sentences }, (_, i) => GRAMMAR.map((words, at) => words[draws[at][i]]).join(" "));
  const text = lines.map((line) => `${line}.\n`).join("");
  const choices = GRAMMAR.reduce((sum, words) => sum + Math.log(words.length), 0);
  return [text, sentences * choices / text.length];
}

/** Characters of all sentences; their places in it are the tokens. */
const ALPHABET = [...new Set(GRAMMAR.flat().join("") + " .\n")].sort().join("");
const encode = (text: string) => mx.array(Array.from(text, (char) => ALPHABET.indexOf(char)), mx.int32);

/** Characters that the model sees at once. */
const CONTEXT = 64;

/** A decoder-only transformer: embeddings of characters and of their places, blocks of causal attention, a head. */
class CharacterModel extends mx.nn.Module {
  tokens: mx.nn.Embedding;
  places: mx.nn.Embedding;
  blocks: mx.nn.TransformerEncoder;
  head: mx.nn.Linear;

  constructor(layers: number, dims: number, heads: number) {
    super();
    this.tokens = new mx.nn.Embedding(ALPHABET.length, dims);
    this.places = new mx.nn.Embedding(CONTEXT, dims);
    this.blocks = new mx.nn.TransformerEncoder(layers, dims, heads, 4 * dims);
    this.head = new mx.nn.Linear(dims, ALPHABET.length);
  }

  /** Tokens (B, T) → logits (B, T, V) of the tokens after them. */
  override forward(x: mx.Tensor): mx.Tensor {
    const y = mx.add(this.tokens.forward(x), this.places.forward(mx.arange(x.shape[1])));
    return this.head.forward(this.blocks.forward(y, "causal"));
  }
}

/** Windows of a text that begin at `starts` (B,): inputs and targets (B, CONTEXT), the latter one character further. */
function windows(text: mx.Tensor, starts: mx.Tensor): [x: mx.Tensor, y: mx.Tensor] {
  const at = mx.add(mx.expandDims(starts, 1), mx.arange(CONTEXT));
  return [mx.take(text, at), mx.take(text, mx.add(at, 1))];
}

/** The text that the model writes after `prompt`, `count` characters. */
function generate(model: CharacterModel, prompt: string, count: number): string {
  let text = prompt;
  for (let i = 0; i < count; i++) {
    const seen = text.slice(-CONTEXT);
    // Padded at the end to one length: later places are not attended to.
    const logits = model.forward(mx.expandDims(encode(seen.padEnd(CONTEXT)), 0));
    text += ALPHABET[Number(mx.random.categorical(logits.index(0, seen.length - 1)).item())];
  }
  return text;
}

/** The measurements of a training. */
export interface Trained {
  /** Mean cross entropy of a text that was not trained on, before the training and after it. */
  readonly lossBefore: number;
  readonly loss: number;
  /** The least that a model can lose there. */
  readonly entropy: number;
  /** A text of the trained model. */
  readonly text: string;
}

/** Trains; `report` gets the loss of each 50th step. */
export function train(steps = 400, report: (step: number, loss: number) => void = () => {}): Trained {
  mx.random.seed(0);
  const trainText = encode(write(1000)[0]);
  const [written, entropy] = write(60);
  const testText = encode(written);
  const model = new CharacterModel(2, 64, 4);
  const optimizer = new mx.optimizers.AdamW({ learningRate: mx.optimizers.cosineDecay(3e-3, steps) });
  optimizer.init(model.trainableParameters());
  mx.eval(trainText, testText, model.parameters());

  const loss = (x: mx.Tensor, y: mx.Tensor) => mx.mean(mx.nn.losses.crossEntropy(model.forward(x), y));
  const lossAndGradients = mx.nn.valueAndGrad(model, loss);
  const state = [model.state, optimizer.state];
  using step = mx.compile(
    (x: mx.Tensor, y: mx.Tensor) => {
      const [value, gradients] = lossAndGradients(x, y);
      optimizer.update(model, gradients);
      return value;
    },
    state,
    state,
  );

  const testStarts = mx.arange(0, testText.size - CONTEXT - 1, CONTEXT / 2);
  const testLoss = () => Number(loss(...windows(testText, testStarts)).item());
  const lossBefore = testLoss();
  for (let i = 1; i <= steps; i++) {
    const starts = mx.random.randint(0, trainText.size - CONTEXT - 1, [16]);
    const value = step(...windows(trainText, starts));
    mx.eval(value);
    if (i % 50 === 0) report(i, Number(value.item()));
  }
  return { lossBefore, loss: testLoss(), entropy, text: generate(model, "the small", 120) };
}

if (import.meta.main) {
  const trained = train(400, (step, loss) => console.log(`step ${step}: loss ${loss.toFixed(4)}`));
  const [before, after, least] = [trained.lossBefore, trained.loss, trained.entropy].map((x) => x.toFixed(4));
  console.log(`a text not trained on: loss ${before} → ${after}, ${least} is the least\n\n${trained.text}`);
}
