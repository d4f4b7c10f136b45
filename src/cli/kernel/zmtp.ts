/**
 * As much of ZMTP 3.0, which Jupyter's sockets speak, as it takes to read messages that pass by and to send some.
 *
 * A peer sends a greeting of 64 bytes, a READY command, and then messages. A message has frames: a byte of flags, the length, the bytes.
 *
 * @module
 */

const GREETING_BYTES = 64;
const MORE = 1, LONG = 2, COMMAND = 4;
const UTF8 = new TextEncoder();

/** Data of a peer: its greeting, a command or a message. */
export interface Passed {
  /** The bytes as they came. */
  readonly bytes: Uint8Array;
  /** The frames of a message; none of the greeting and of commands. */
  readonly frames: readonly Uint8Array[];
}

/** A stream of bytes that gives them in the pieces that are asked for. */
class Reader {
  readonly #from: Deno.Conn;
  #held = new Uint8Array(0);

  constructor(from: Deno.Conn) {
    this.#from = from;
  }

  /** The next bytes; undefined at the end. */
  async take(count: number): Promise<Uint8Array | undefined> {
    while (this.#held.length < count) {
      const piece = new Uint8Array(65536);
      const read = await this.#from.read(piece).catch(() => null);
      if (read === null) return undefined;
      this.#held = concatBytes([this.#held, piece.subarray(0, read)]);
    }
    const taken = this.#held.slice(0, count);
    this.#held = this.#held.slice(count);
    return taken;
  }
}

/** Pieces as one. */
function concatBytes(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** The messages of a peer, whole ones, until it goes. */
export async function* passed(from: Deno.Conn): AsyncGenerator<Passed, void, void> {
  const reader = new Reader(from);
  const greeting = await reader.take(GREETING_BYTES);
  if (greeting === undefined) return;
  yield { bytes: greeting, frames: [] };
  for (;;) {
    const raw: Uint8Array[] = [];
    const frames: Uint8Array[] = [];
    let flags = MORE;
    while ((flags & MORE) !== 0) {
      const head = await reader.take(1);
      if (head === undefined) return;
      [flags] = head;
      const size = await reader.take((flags & LONG) !== 0 ? 8 : 1);
      if (size === undefined) return;
      const length = size.reduce((sum, byte) => sum * 256 + byte, 0);
      const body = await reader.take(length);
      if (body === undefined) return;
      raw.push(head, size, body);
      if ((flags & COMMAND) === 0) frames.push(body);
    }
    yield { bytes: concatBytes(raw), frames };
  }
}

/** A frame with its head. */
function frame(body: Uint8Array, flags: number): Uint8Array {
  if (body.length < 256) return concatBytes([Uint8Array.of(flags, body.length), body]);
  const head = new Uint8Array(9);
  head[0] = flags | LONG;
  new DataView(head.buffer).setBigUint64(1, BigInt(body.length));
  return concatBytes([head, body]);
}

/** The bytes of a message. */
export function message(frames: readonly Uint8Array[]): Uint8Array {
  return concatBytes(frames.map((body, i) => frame(body, i < frames.length - 1 ? MORE : 0)));
}

/** The first bytes of a peer that opens a connection: the greeting and, as a DEALER socket, READY. */
export function openingMessage(): Uint8Array {
  const greeting = new Uint8Array(GREETING_BYTES);
  greeting.set([0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0]);
  greeting.set(UTF8.encode("NULL"), 12); // no encryption
  const text = (value: string): Uint8Array => concatBytes([Uint8Array.of(value.length), UTF8.encode(value)]);
  const property = concatBytes([text("Socket-Type"), Uint8Array.of(0, 0, 0, 6), UTF8.encode("DEALER")]);
  return concatBytes([greeting, frame(concatBytes([text("READY"), property]), COMMAND)]);
}

/** Writes all of some bytes. */
export async function writeAll(to: Deno.Conn, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await to.write(bytes.subarray(at));
}
