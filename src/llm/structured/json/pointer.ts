/**
 * References into a schema: JSON pointers and anchors.
 *
 * @module
 */

/** Whether a value is an object of JSON. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The target of a reference in a schema, in a list of one; an empty list if there is none. */
export function referred(root: unknown, reference: string): readonly unknown[] {
  const id = isObject(root) && typeof root.$id === "string" ? root.$id.replace(/#$/, "") : "";
  const local = id !== "" && reference.startsWith(id) ? reference.slice(id.length) : reference;
  if (local === "" || local === "#") return [root];
  if (!local.startsWith("#")) return [];
  let fragment: string;
  try {
    fragment = decodeURIComponent(local.slice(1));
  } catch {
    return [];
  }
  return fragment.startsWith("/") ? atPointer(root, fragment) : withAnchor(root, fragment);
}

function atPointer(root: unknown, pointer: string): readonly unknown[] {
  let at = root;
  for (const part of pointer.slice(1).split("/")) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, name)) return [];
    at = (at as Record<string, unknown>)[name];
  }
  return [at];
}

function withAnchor(root: unknown, anchor: string): readonly unknown[] {
  const queue = [root];
  for (const value of queue) {
    if (isObject(value) && (value.$anchor === anchor || value.$dynamicAnchor === anchor)) return [value];
    if (typeof value === "object" && value !== null) { for (const part of Object.values(value)) queue.push(part); }
  }
  return [];
}
