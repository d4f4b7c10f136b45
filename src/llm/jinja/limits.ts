/**
 * Limits on the cost of a template. A template comes with a model file, so nothing about it is trusted. Reading and rendering count
 * steps and bytes, look at the clock, and end in a {@link TemplateFault}.
 *
 * One meter serves a whole rendering. It is a variable of this module because every operation on every value charges it. Rendering
 * never waits, so two renderings cannot overlap; a nested one keeps the outer one's meter.
 *
 * @module
 */

/** Most characters of a string, besides those of the conversation, which a template may write as a whole. */
const BASE_VALUE = 4 * 2 ** 20;
/** Most items of a list: 8 bytes each. */
const MAX_ITEMS = BASE_VALUE / 8;
/** Steps of a rendering, besides those for each value of the conversation. */
const BASE_STEPS = 1_000_000;
/** Further steps for each value of the conversation: published templates take up to a hundred for a message of three. */
const STEPS_PER_VALUE = 100;
/** Bytes of all strings and lists that are made, besides those for each character of the conversation. */
const BASE_BYTES = 64 * 2 ** 20;
const BYTES_PER_CHAR = 16;
/** Time of a rendering, besides that for each value of the conversation. */
const BASE_MILLISECONDS = 1000;
const MILLISECONDS_PER_VALUE = 0.05;
/** Items that range() gives in all, besides those for each value of the conversation. */
const BASE_RANGE = 100_000;
const RANGE_PER_VALUE = 100;
/** Levels of nested evaluation: macros that call each other, loops in loops, parts of expressions. */
const MAX_DEPTH = 600;
/** Steps between two looks at the clock. */
const CLOCK_STEPS = 2048;

/** A template that is wrong, refuses the conversation, or takes too much. */
export class TemplateFault extends Error {
  /** Name of the class. */
  override readonly name = "TemplateFault";
  /** Line of the template, from 1. */
  readonly line: number;

  /** Makes a fault at a line, or at the one that is being rendered. */
  constructor(message: string, line: number = meter.line) {
    super(message);
    this.line = line;
  }
}

/** The size of a conversation, which the limits grow with. */
export interface InputSize {
  /** Values: strings, numbers, lists, objects. */
  values: number;
  /** Characters of all strings. */
  chars: number;
}

class Meter {
  line = 1;
  depth = 0;
  steps = 0;
  bytes = 0;
  ranged = 0;
  nextClock = CLOCK_STEPS;
  readonly maxSteps: number;
  readonly maxBytes: number;
  readonly maxValue: number;
  readonly maxRange: number;
  readonly milliseconds: number;
  readonly deadline: number;

  constructor({ values, chars }: InputSize) {
    this.maxValue = BASE_VALUE + chars;
    this.maxRange = Math.max(BASE_RANGE, RANGE_PER_VALUE * values);
    this.milliseconds = BASE_MILLISECONDS + MILLISECONDS_PER_VALUE * values;
    this.deadline = performance.now() + this.milliseconds;
    this.maxSteps = BASE_STEPS + STEPS_PER_VALUE * values;
    this.maxBytes = BASE_BYTES + BYTES_PER_CHAR * chars;
  }
}

/** Outside of renderings, where values of the conversation are made, there are no limits. */
let meter = new Meter({ values: Infinity, chars: Infinity });

/** Runs `work` with a meter of its own. */
export function metered<T>(size: InputSize, work: () => T): T {
  const outer = meter;
  meter = new Meter(size);
  try {
    return work();
  } catch (error) {
    if (error instanceof TemplateFault) throw error;
    // The nesting is too deep for this thread's stack.
    if (error instanceof RangeError) throw new TemplateFault("the template is nested too deeply");
    throw error;
  } finally {
    meter = outer;
  }
}

/** Counts steps. */
export function step(count = 1): void {
  meter.steps += count;
  if (meter.steps >= meter.nextClock) checkMeter();
}

function checkMeter(): void {
  if (meter.steps > meter.maxSteps) {
    throw new TemplateFault(`rendering takes more than ${meter.maxSteps} steps`);
  }
  if (performance.now() > meter.deadline) {
    throw new TemplateFault(`rendering takes longer than ${Math.round(meter.milliseconds)} ms`);
  }
  meter.nextClock = meter.steps + CLOCK_STEPS;
}

/** Counts reading or writing characters, of which a step handles many. */
export function touch(chars: number): void {
  step(1 + (chars >>> 8));
}

/** Counts bytes of a new value. */
export function allocate(bytes: number): void {
  meter.bytes += bytes;
  if (meter.bytes > meter.maxBytes) {
    throw new TemplateFault(`rendering makes values of more than ${meter.maxBytes} bytes`);
  }
  if (bytes >= 256) touch(bytes);
}

/** Refuses a string that would be too long, before it is made. */
export function checkLength(chars: number, pieces = 0): void {
  if (!(chars <= meter.maxValue)) throw new TemplateFault(`a string of ${chars} characters, at most ${meter.maxValue}`);
  if (pieces > 2 * meter.maxValue) throw new TemplateFault(`a string of more than ${2 * meter.maxValue} pieces`);
}

/** Refuses a list that would be too long, before it is made. */
export function checkItems(items: number): void {
  if (!(items <= MAX_ITEMS)) throw new TemplateFault(`a list of ${items} items, at most ${MAX_ITEMS}`);
}

/** Counts items of range(), or asks whether so many would be too many. */
export function countRange(items: number, asked = false): void {
  if (!asked) meter.ranged += items;
  const all = asked ? items : meter.ranged;
  if (all > meter.maxRange) throw new TemplateFault(`range() of ${all} items in all, at most ${meter.maxRange}`);
}

/** Notes the line that errors name. */
export function atLine(line: number): void {
  meter.line = line;
}

/** Goes one level down; {@link leave} comes back. After an error no call of it is needed. */
export function enter(): void {
  if (++meter.depth > MAX_DEPTH) {
    throw new TemplateFault(`more than ${MAX_DEPTH} levels of macros, loops and expressions`);
  }
}

/** Comes back from a level. */
export function leave(): void {
  meter.depth--;
}
