/**
 * Modules as consoles show them: on one screen, however large they are, with counts of parameters. Equal neighbours in a list stand
 * there once, and where that is not enough modules far below become one line.
 *
 * @module
 */

/** The entries of a summary for a module. */
export interface Outline {
  /** Name of the class. */
  readonly kind: string;
  /** The settings in the parentheses. */
  readonly settings: string;
  /** Parameters of the module and of those below. */
  readonly parameters: number;
  /** How many of them are trained. */
  readonly trained: number;
  /** The modules directly below. */
  readonly children: readonly (readonly [name: string, module: Outline])[];
}

/** Lines and columns of a terminal. */
const SCREEN = { lines: 24, columns: 80 };
/** Children of a module that are shown at each end if all are too many. */
const ENDS = 5;

/** Children that are shown as one: all have the same text. */
interface Group {
  readonly names: readonly string[];
  readonly text: string;
}

function shownCount(count: number): string {
  return `${count.toLocaleString("en")} parameter${count === 1 ? "" : "s"}`;
}

/** "layers.0-5" of "layers.0" to "layers.5". */
function shownNames(names: readonly string[]): string {
  return names.length === 1 ? names[0] : `${names[0]}-${names[names.length - 1].split(".").pop()}`;
}

/** Whether a name is that of the next place of a list: "layers.1" after "layers.0". */
function follows(name: string, before: string): boolean {
  const [, list, place] = /^(.*)\.(\d+)$/.exec(before) ?? [];
  return list !== undefined && name === `${list}.${Number(place) + 1}`;
}

/** Neighbours of one list with the same text together. */
function grouped(children: readonly (readonly [name: string, text: string])[]): Group[] {
  const groups: { names: string[]; text: string }[] = [];
  for (const [name, text] of children) {
    const last = groups[groups.length - 1];
    if (last?.text === text && follows(name, last.names[last.names.length - 1])) last.names.push(name);
    else groups.push({ names: [name], text });
  }
  return groups;
}

/** A module's text with the modules up to `depth` levels below it. */
function render({ kind, settings, parameters, children }: Outline, depth: number): string {
  if (children.length === 0) return `${kind}(${settings})`;
  if (depth === 0) return `${kind}(…) ${shownCount(parameters)}`;
  const lines = grouped(children.map(([name, module]) => [name, render(module, depth - 1)])).map(({ names, text }) => {
    const times = names.length === 1 ? "" : `${names.length} × `;
    return `(${shownNames(names)}): ${times}${text}`.replaceAll("\n", "\n  ");
  });
  const left = lines.length - 2 * ENDS;
  const shown = depth > 1 || left <= 1 ? lines : [...lines.slice(0, ENDS), `… ${left} more`, ...lines.slice(-ENDS)];
  return `${kind}(${settings}\n  ${shown.join("\n  ")}\n)`;
}

/** Lines that a text takes on a screen. */
function screenLines(text: string): number {
  return text.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / SCREEN.columns)), 0);
}

/** The levels of modules below one. */
function depthOf({ children }: Outline): number {
  return children.reduce((most, [, module]) => Math.max(most, 1 + depthOf(module)), 0);
}

/** A module on one screen, with the number of its parameters and of those that are trained. */
export function summarize(outline: Outline): string {
  const { parameters, trained, children } = outline;
  if (children.length === 0) return render(outline, 0);
  const counts = `${shownCount(parameters)}${
    trained === parameters ? "" : `, ${trained.toLocaleString("en")} trained`
  }`;
  const whole = (depth: number): string => `${render(outline, depth)}\n${counts}`;
  let depth = depthOf(outline);
  while (depth > 1 && screenLines(whole(depth)) > SCREEN.lines) depth--;
  return whole(depth);
}
