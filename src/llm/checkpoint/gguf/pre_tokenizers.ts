/**
 * How texts are cut into words, by the names that GGUF files have for it ("tokenizer.ggml.pre"). Rows give the fields of tokenizer.json
 * that models with these names were published with.
 *
 * @module
 */

/** A step of a pipeline of tokenizer.json. */
type Step = Readonly<Record<string, unknown>>;

/** The way of a vocabulary to cut texts. */
export interface PreTokenizerRow {
  /** Steps before "ByteLevel". */
  readonly steps?: readonly Step[];
  /** Whether "ByteLevel" splits by GPT-2's pattern. */
  readonly gpt2?: boolean;
  /** Whether texts are in the normal form C. */
  readonly nfc?: boolean;
  /** Whether a word that is a token needs no merges. */
  readonly wholeWords?: boolean;
  /** Whether texts begin with the BOS token where the file does not say. */
  readonly bos?: boolean;
}

/** Cuts at the matches of a pattern, which are words too. */
function split(pattern: string): Step {
  return { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false };
}

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const SPACES = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;
const SIGNS = String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*`;
/** Words of letters after any sign, digits in groups, signs, spaces. */
const words = (digits: string): string =>
  String.raw`${CONTRACTIONS}|[^\r\n\p{L}\p{N}]?\p{L}+|${digits}|${SIGNS}|${SPACES}`;
const UPPER = String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const LOWER = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;
/** The same with words that are cut before capitals. */
const cased = (end: string, digits: string): string =>
  String.raw`[^\r\n\p{L}\p{N}]?${UPPER}*${LOWER}+${end}|[^\r\n\p{L}\p{N}]?${UPPER}+${LOWER}*${end}|${digits}|` +
  String.raw` ?[^\s\p{L}\p{N}]+[\r\n/]*|${SPACES}`;
const ONE_DIGIT = String.raw`\p{N}`;
const THREE_DIGITS = String.raw`\p{N}{1,3}`;
const CJK = "[一-龥぀-ゟ゠-ヿ]+";
/** Characters of Chinese, Japanese and Korean as DeepSeek's first models have them. */
const OLD_CJK = "[一-龥ࠀ-一가-퟿]+";
const EACH_DIGIT: Step = { type: "Digits", individual_digits: true };

const LLAMA3: PreTokenizerRow = { steps: [split(words(THREE_DIGITS))], wholeWords: true, bos: true };
const QWEN2: PreTokenizerRow = { steps: [split(words(ONE_DIGIT))], nfc: true };
const GPT2: PreTokenizerRow = { gpt2: true };
const DIGITS: PreTokenizerRow = { steps: [EACH_DIGIT], gpt2: true };
const GPT4O: PreTokenizerRow = { steps: [split(cased(`${CONTRACTIONS}?`, THREE_DIGITS))] };

/** Rows by name. */
export const PRE_TOKENIZERS: Readonly<Record<string, PreTokenizerRow>> = {
  "chatglm-bpe": { steps: [split(words(THREE_DIGITS))] },
  "command-r": DIGITS,
  dbrx: { steps: [split(words(THREE_DIGITS))] },
  "deepseek-coder": {
    steps: [split("[\\r\\n]"), split(String.raw`\s?\p{L}+`), split(String.raw`\s?\p{P}+`), split(OLD_CJK), EACH_DIGIT],
  },
  "deepseek-r1-qwen": QWEN2,
  "deepseek-v3": {
    steps: [
      split(THREE_DIGITS),
      split(CJK),
      split(
        String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_` + "`" +
          String.raw`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|${SPACES}`,
      ),
    ],
  },
  "falcon-h1": LLAMA3,
  falcon3: LLAMA3,
  glm4: { steps: [split(words(THREE_DIGITS))] },
  "gpt-2": GPT2,
  "gpt-4o": GPT4O,
  "granite-docling": GPT2,
  kanana2: GPT4O,
  lfm2: LLAMA3,
  "llama-bpe": LLAMA3,
  "llama-v3": LLAMA3,
  llama3: LLAMA3,
  llama4: GPT4O,
  megrez: QWEN2,
  mpt: GPT2,
  olmo: GPT2,
  "phi-2": GPT2,
  pixtral: LLAMA3,
  qwen2: QWEN2,
  qwen35: {
    steps: [
      split(
        String.raw`${CONTRACTIONS}|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|${SPACES}`,
      ),
    ],
  },
  refact: DIGITS,
  "smaug-bpe": { steps: [split(words(THREE_DIGITS))] },
  smollm: DIGITS,
  stablelm2: { steps: [split(words(ONE_DIGIT))] },
  starcoder: DIGITS,
  tekken: { steps: [split(cased("", ONE_DIGIT))], wholeWords: true, bos: true },
};
