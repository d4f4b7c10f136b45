/**
 * `deno run -A bridge.ts MOD DEVICE` serves a module to Python over stdin and stdout.
 *
 * A message is two lengths of 32 bits, JSON and raw bytes. It only converts: values that JSON lacks are objects with one "$" key, see
 * decode() and encode().
 *
 * @module
 */
// deno-lint-ignore-file no-explicit-any -- values of all kinds go through

const [where, device] = Deno.args;
console.log = console.info = console.error;
const mx: any = await import(/^[a-z]+:/.test(where) ? where : "file://" + await Deno.realPath(where));
mx.setDefaultDevice(device);
const Tensor: any = mx.array(0).constructor;

// ---- the pipe ----
const text = new TextEncoder(), plain = new TextDecoder();
function readExactly(n: number): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(n);
  for (let at = 0; at < n;) {
    const got = Deno.stdin.readSync(out.subarray(at));
    if (got === null) Deno.exit(0);
    at += got;
  }
  return out;
}
function receive(): { m: any; blob: Uint8Array<ArrayBuffer> } {
  const [a, b] = new Uint32Array(readExactly(8).buffer);
  return { m: JSON.parse(plain.decode(readExactly(a))), blob: readExactly(b) };
}
function send(m: unknown, blob: Uint8Array = new Uint8Array(0)): void {
  const json = text.encode(JSON.stringify(m));
  const all = new Uint8Array(8 + json.length + blob.length);
  new Uint32Array(all.buffer, 0, 2).set([json.length, blob.length]);
  all.set(json, 8);
  all.set(blob, 8 + json.length);
  for (let at = 0; at < all.length;) at += Deno.stdout.writeSync(all.subarray(at));
}

// ---- handles ----
let last = 0, depth = 0;
const held = new Map<number, { value: any; count: number }>();
const idOf = new Map<any, number>();
/** The number of a value that Python holds; it is disposed when Python lets go. */
function hold(value: any): number {
  let id = idOf.get(value);
  if (id === undefined) {
    idOf.set(value, id = ++last);
    held.set(id, { value, count: 0 });
  }
  held.get(id)!.count++;
  return id;
}
let dead: number[] = [];
function release(): void {
  if (depth > 0) return; // arrays that a running transform may still use wait for its end
  for (const id of dead) {
    const h = held.get(id)!;
    if (--h.count > 0) continue;
    held.delete(id);
    idOf.delete(h.value);
    h.value[Symbol.dispose]?.();
  }
  dead = [];
}

/** Arrays that stand for numbers in the request that runs. */
let numbers: any[] = [];
function endNumbers(): void {
  for (const number of numbers) if (!idOf.has(number)) number.dispose();
  numbers = [];
}

class PyRef {
  constructor(readonly id: number) {}
}
class PyError extends Error {
  constructor(readonly id: number) {
    super("an error of Python");
  }
}
const refs = new Map<number, PyRef>(), callbacks = new Map<number, any>();
const SPECIAL: Record<string, number> = { nan: NaN, inf: Infinity, "-inf": -Infinity, "-0": -0 };

function decode(v: any): any {
  if (v === null || typeof v !== "object") return v;
  if (Array.isArray(v)) return v.map(decode);
  const [[k, x]] = Object.entries(v) as [string, any][];
  switch (k) {
    case "$h":
      return held.get(x)!.value; // the array that Python holds
    case "$d":
      return mx[x]; // a dtype
    case "$v":
      return mx[x]; // a category of dtypes
    case "$c":
      return mx.complex(decode(x[0]), decode(x[1]));
    case "$n":
      return SPECIAL[x];
    case "$s": { // a number of a dtype
      const number = mx.array(decode(x[0]), mx[x[1]]);
      if (depth === 0) numbers.push(number);
      return number;
    }
    case "$sl":
      return mx.Slice(...x);
    case "$e":
      return "...";
    case "$u":
      return undefined;
    case "$i":
      return BigInt(x);
    case "$o":
      return Object.fromEntries(Object.entries(x).map(([n, p]) => [n, decode(p)]));
    case "$p":
      return refs.get(x) ?? (refs.set(x, new PyRef(x)), refs.get(x)); // a Python object
    case "$f": // a Python function
      if (!callbacks.has(x)) callbacks.set(x, (...args: any[]) => callPython(x, args));
      return callbacks.get(x);
  }
  throw new Error("bridge: cannot decode " + k);
}
function encode(v: any): any {
  if (v === null || v === undefined) return null;
  if (typeof v === "number") {
    return Number.isFinite(v) && !Object.is(v, -0)
      ? v
      : { $n: Object.is(v, -0) ? "-0" : String(v).replace("Infinity", "inf").replace("NaN", "nan") };
  }
  if (typeof v === "bigint") return { $i: String(v) };
  if (typeof v === "string" || typeof v === "boolean") return v;
  if (v instanceof Tensor && v.isDisposed) return null; // of a trace, left in a container
  if (v instanceof Tensor) return { $h: hold(v), s: v.shape, d: v.dtype.name };
  if (typeof v === "function") return { $j: hold(v) };
  if (Array.isArray(v)) return v.map((x) => encode(x));
  if (v instanceof PyRef) return { $p: v.id };
  if (v.name && mx[v.name] === v) return { $d: v.name };
  if (v.category && mx[v.category] === v) return { $k: v.category };
  if (typeof v.re === "number" && typeof v.im === "number") return { $c: [encode(v.re), encode(v.im)] };
  if (v[Symbol.dispose]) return { $j: hold(v) };
  const proto = Object.getPrototypeOf(v);
  if (proto === Object.prototype || proto === null) {
    return { $o: Object.fromEntries(Object.entries(v).map(([n, x]) => [n, encode(x)])) };
  }
  return { $j: hold(v) };
}

function callPython(id: number, args: any[]): any {
  send({ cb: id, args: encode(args) });
  depth++;
  try {
    while (true) {
      const { m, blob } = receive();
      if (m.free) dead.push(...m.free);
      if (m.op === "return") return decode(m.value);
      if (m.op === "raise") throw new PyError(m.id);
      answer(() => run(m, blob));
    }
  } finally {
    depth--;
  }
}

// ---- requests ----
const path = (p: string): [any, any] => p.split(".").reduce(([, o]: any, k) => [o, o?.[k]], [undefined, mx]);
const TYPES: any = {
  Int8Array,
  Uint8Array,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float16Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
};

function run(m: any, blob: Uint8Array<ArrayBuffer>): any {
  switch (m.op) {
    case "call": {
      const [owner, fn] = path(m.path);
      return typeof fn === "function" ? fn.apply(owner, m.args.map(decode)) : fn;
    }
    case "method": {
      const self = held.get(m.self)!.value, found = self[m.name];
      return typeof found === "function" ? found.apply(self, m.args.map(decode)) : found;
    }
    case "apply":
      return held.get(m.fn)!.value(...m.args.map(decode));
    case "dispose":
      return held.get(m.self)!.value[Symbol.dispose]();
    case "container":
      return new Container(decode(m.value));
    case "fill": {
      held.get(m.self)!.value.tree = decode(m.value);
      return null;
    }
    case "held":
      return held.get(m.self)!.value.tree;
    case "iterate":
      return [...held.get(m.self)!.value];
    case "at":
      return held.get(m.self)!.value.at(...m.index.map(decode))[m.name](decode(m.value));
    case "data": { // an array of raw bytes
      const values = new TYPES[m.type](blob.buffer, 0, blob.length / TYPES[m.type].BYTES_PER_ELEMENT);
      if (m.pairs) return mx.array(values).view(mx.complex64).reshape(m.shape);
      return mx.array(values, mx[m.dtype]).reshape(m.shape);
    }
    case "read": {
      const v = held.get(m.self)!.value.toTypedArray();
      return new Reply(v.constructor.name, new Uint8Array(v.buffer, v.byteOffset, v.byteLength));
    }
    case "exports":
      return exports();
  }
  throw new Error("bridge: no operation " + m.op);
}
/** Holds a tree of arrays that a compiled function reads or writes. */
class Container {
  constructor(public tree: unknown) {}
}
class Reply {
  constructor(readonly type: string, readonly bytes: Uint8Array) {}
}

/** Names of a function's parameters, from its own text: JavaScript ignores arguments too many, the shim must not. */
function parameters(fn: any): string[] {
  const s = fn.toString(), open = s.indexOf("("), arrow = s.indexOf("=>");
  if (open < 0 || (arrow >= 0 && arrow < open)) return [s.slice(0, arrow).trim()];
  const out: string[] = [];
  let d = 0, from = open + 1;
  for (let i = open; i < s.length; i++) {
    if ("([{".includes(s[i])) d++;
    else if (")]}".includes(s[i])) d--;
    if ((d === 0 && s[i] === ")") || (d === 1 && s[i] === ",")) {
      const p = s.slice(from, i).trim();
      if (p) out.push(p.startsWith("{") ? "options" : p.split("=")[0].trim());
      from = i + 1;
      if (d === 0) break;
    }
  }
  return out;
}
function exports(): any {
  const names: any = {}, methods: any = {};
  const add = (to: any, name: string, v: any): void => {
    if (typeof v === "function") to[name] = parameters(v);
    else if (v?.name && v?.bytes !== undefined) to[name] = "dtype";
    else to[name] = typeof v === "object" && v !== null ? "object" : "value";
  };
  for (const [k, v] of Object.entries(mx) as [string, any][]) {
    add(names, k, v);
    if (Object.prototype.toString.call(v) === "[object Module]" && k !== "lm") {
      names[k] = "module";
      for (const [k2, v2] of Object.entries(v)) add(names, `${k}.${k2}`, v2);
    }
  }
  for (const k of Object.getOwnPropertyNames(Tensor.prototype)) {
    const d = Object.getOwnPropertyDescriptor(Tensor.prototype, k)!;
    methods[k] = d.get ? "property" : parameters(d.value);
  }
  return { names, methods };
}

const known = [mx.ArrayError, mx.RuntimeError].filter(Boolean);
function failure(e: any): any {
  if (e instanceof PyError) return { err: { py: e.id } };
  return {
    err: {
      name: e?.name,
      code: e?.code,
      message: String(e?.message ?? e),
      stack: e?.stack,
      known: known.some((k: any) => e instanceof k),
    },
  };
}
function respond(v: any): void {
  if (v instanceof Reply) send({ v: v.type }, v.bytes);
  else send({ v: encode(v) });
}
function answer(fn: () => any): void {
  try {
    respond(fn());
  } catch (e) {
    send(failure(e));
  }
}

for (let n = 0;; n++) {
  const { m, blob } = receive();
  if (m.free) dead.push(...m.free);
  for (const id of m.gone ?? []) callbacks.delete(id);
  release(); // the shim keeps what a request names until its answer
  try {
    let v = run(m, blob);
    if (v instanceof Promise) v = await v;
    respond(v);
  } catch (e) {
    send(failure(e));
  }
  endNumbers();
  if (n % 64 === 63) await new Promise((r) => setTimeout(r, 0)); // lets the finalizers run
}
