/**
 * Edits as docs/extending.md writes them: blocks of ```diff that begin with "+++ path". Lines with a space are there, lines with "+"
 * come, lines with "-" go, and "@@" stands between the places of a file. There are no line numbers: the old lines must stand in
 * exactly one place.
 *
 * @module
 */

/** A block. */
export interface Edit {
  readonly path: string;
  /** With their marks. */
  readonly lines: readonly string[];
}

/** The edits of each section of a Markdown text, by its title; sections without edits are left out. */
export function editsOf(markdown: string): Map<string, Edit[]> {
  const sections = new Map<string, Edit[]>();
  for (const section of markdown.split(/^## /m).slice(1)) {
    const title = section.slice(0, section.indexOf("\n"));
    const edits = Array.from(section.matchAll(/^( *)```diff\n([^]*?)^\1```$/gm), ([, indent, body]): Edit => {
      const [head, ...lines] = body.trimEnd().split("\n").map((line) => line.slice(indent.length));
      if (!head.startsWith("+++ ")) throw new Error(`${title}: a block begins with "${head}" instead of "+++ path"`);
      return { path: head.slice(4), lines: lines.map((line) => line || " ") };
    });
    if (edits.length > 0) sections.set(title, edits);
  }
  return sections;
}

/** The text of a file after an edit; `text` is undefined if there is no such file yet. */
export function applyEdit(text: string | undefined, { path, lines }: Edit): string {
  const end = lines.indexOf("@@");
  const rest = end < 0 ? [] : lines.slice(end + 1);
  const edited = applyPlace(text, path, end < 0 ? lines : lines.slice(0, end));
  return rest.length === 0 ? edited : applyEdit(edited, { path, lines: rest });
}

function applyPlace(text: string | undefined, path: string, lines: readonly string[]): string {
  const marked = (marks: string): string =>
    lines.filter((line) => marks.includes(line[0])).map((line) => `${line.slice(1)}\n`).join("");
  const [before, after] = [marked(" -"), marked(" +")];
  if (before === "") {
    if (text !== undefined) throw new Error(`${path} is there already`);
    return after;
  }
  if (text === undefined) throw new Error(`${path} is not there`);
  const places: number[] = [];
  for (let at = text.indexOf(before); at >= 0; at = text.indexOf(before, at + 1)) {
    if (at === 0 || text[at - 1] === "\n") places.push(at);
  }
  if (places.length !== 1) throw new Error(`${path} has ${places.length} places for:\n${lines.join("\n")}`);
  return text.slice(0, places[0]) + after + text.slice(places[0] + before.length);
}
