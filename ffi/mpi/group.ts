/**
 * Processes that MPI started. What a group of `mx.distributed` exchanges goes through one.
 *
 * Every call is nonblocking and then waited for, so that a wait can end. A process that waits for a second tells the others for which exchange.
 * One that told nothing is missing. MPI mixes up the arrays of processes that make different calls. So the first exchanges, and some later
 * ones, begin with a comparison.
 *
 * @module
 */

import { RuntimeError } from "../error.ts";
import { ANY_SOURCE, checkMpi, type Handle, type HandleName, type Mpi, STATUS_BYTES } from "./library.ts";

/** What processes do together, and the functions of `mx.distributed` that do. */
const CALLS = {
  sum: "allSum",
  min: "allMin",
  max: "allMax",
  gather: "allGather",
  sumScatter: "sumScatter",
  send: "send",
  receive: "recv",
} as const;
const KINDS = Object.keys(CALLS) as readonly ExchangeKind[];

/** What processes do together; "send" and "receive" are of two. */
export type ExchangeKind = keyof typeof CALLS;

/** The dtype of elements, as much as MPI needs of it. */
export interface Elements {
  readonly name: string;
  readonly bytes: number;
}

/** Most bytes of one call: counts of MPI are int32, and a call of this size takes no longer for being one of several. */
const MOST_BYTES = 2 ** 28;
/** Milliseconds of a wait until it gives up the processor, and until other processes hear of it. */
const [SPIN_MS, TELL_MS] = [0.2, 1000];
/** Tags of messages: of arrays, and of waits. */
const [ARRAY_TAG, WAIT_TAG] = [1, 2];

/** Exchanges that are compared: the first ones, where programs part, and then one in so many. A comparison takes some 5 µs. */
const [COMPARED, EVERY, COMPARED_BYTES] = [256, 64, 48];

/** The processes of a communicator of MPI. */
export class MpiGroup {
  readonly #mpi: Mpi;
  readonly #comm: Handle;
  /** The same processes, for telling of waits. */
  readonly #telling: Handle;
  readonly #timeout: number;
  readonly #cell = new Int32Array(new SharedArrayBuffer(4));
  /** The number of the exchange that each other process told of last. */
  readonly #told = new Map<number, number>();
  /** Memory that MPI may still use: of messages on their way, and of calls that were given up. */
  readonly #inUse: unknown[] = [];
  /** Exchanges of all processes so far. */
  #count = 0;
  /** Number of this process among them. */
  readonly rank: number;
  /** How many there are. */
  readonly size: number;

  /** Takes over a communicator. A wait ends after `timeout` seconds. */
  constructor(mpi: Mpi, comm: Handle, timeout: number) {
    this.#mpi = mpi;
    this.#comm = comm;
    this.#timeout = timeout;
    this.#check(mpi.calls.MPI_Comm_set_errhandler(comm, mpi.handles.returnErrors), "init");
    this.#telling = this.#made((out) => mpi.calls.MPI_Comm_dup(comm, out), "init");
    [this.rank, this.size] = [mpi.calls.MPI_Comm_rank, mpi.calls.MPI_Comm_size].map((call) => {
      const out = new Int32Array(1);
      this.#check(call(comm, out), "init");
      return out[0];
    });
  }

  /** The processes that give the same `color`, in the order of `key`. All processes call it. */
  split(color: number, key: number): MpiGroup {
    const { calls } = this.#mpi;
    const comm = this.#made((out) => calls.MPI_Comm_split(this.#comm, color, key, out), "split");
    return new MpiGroup(this.#mpi, comm, this.#timeout);
  }

  /**
   * Exchanges `input`, contiguous values of a dtype, and gives `bytes` of result; `peer` is the other process of "send" and "receive". It
   * returns when that is done. Throws a {@link RuntimeError} where others do not come, or make another call.
   */
  exchange(kind: ExchangeKind, dtype: Elements, input: Uint8Array, bytes: number, peer: number): Uint8Array {
    const out = new Uint8Array(bytes);
    if (kind === "send") this.#send(input, peer);
    else if (kind === "receive") this.#receive(out, peer);
    else {
      this.#count++;
      if (this.#count <= COMPARED || this.#count % EVERY === 0) this.#compare(kind, dtype, input.length);
      if (kind === "gather") this.#gather(input, out);
      else if (kind === "sumScatter") this.#sumScatter(dtype, input, out);
      else this.#reduce(kind, dtype, input, out);
    }
    return out;
  }

  #reduce(kind: "sum" | "min" | "max", dtype: Elements, input: Uint8Array, out: Uint8Array): void {
    const { calls, handles } = this.#mpi;
    const { type, each } = elementsOf(dtype);
    for (let at = 0; at < out.length; at += MOST_BYTES) {
      const [from, to] = [input, out].map((bytes) => bytes.subarray(at, at + MOST_BYTES));
      this.#run(
        kind,
        (request) =>
          calls.MPI_Iallreduce(from, to, to.length / each, handles[type], handles[kind], this.#comm, request),
      );
    }
  }

  /** Bytes of all processes after each other: in pieces where they are many, which then go to their places. */
  #gather(input: Uint8Array, out: Uint8Array): void {
    const { calls, handles: { byte } } = this.#mpi;
    const most = Math.max(1, Math.floor(MOST_BYTES / this.size));
    for (let at = 0; at < input.length; at += most) {
      const from = input.subarray(at, at + most);
      const whole = from.length === input.length;
      const to = whole ? out : new Uint8Array(from.length * this.size);
      this.#run(
        "gather",
        (request) => calls.MPI_Iallgather(from, from.length, byte, to, from.length, byte, this.#comm, request),
      );
      for (let rank = 0; !whole && rank < this.size; rank++) {
        out.set(to.subarray(rank * from.length, (rank + 1) * from.length), rank * input.length + at);
      }
    }
  }

  #sumScatter(dtype: Elements, input: Uint8Array, out: Uint8Array): void {
    const { calls, handles } = this.#mpi;
    if (input.length > MOST_BYTES) {
      const all = new Uint8Array(input.length);
      this.#reduce("sum", dtype, input, all);
      out.set(all.subarray(this.rank * out.length, (this.rank + 1) * out.length));
      return;
    }
    const { type, each } = elementsOf(dtype);
    const { sum } = handles;
    this.#run(
      "sumScatter",
      (request) =>
        calls.MPI_Ireduce_scatter_block(input, out, out.length / each, handles[type], sum, this.#comm, request),
    );
  }

  #send(input: Uint8Array, peer: number): void {
    const { calls, handles: { byte } } = this.#mpi;
    for (let at = 0; at < input.length; at += MOST_BYTES) {
      const from = input.subarray(at, at + MOST_BYTES);
      this.#wait(
        "send",
        (request) => calls.MPI_Isend(from, from.length, byte, peer, ARRAY_TAG, this.#comm, request),
        () => `rank ${peer} has not received what rank ${this.rank} sends`,
      );
    }
  }

  #receive(out: Uint8Array, peer: number): void {
    const { calls, handles: { byte } } = this.#mpi;
    for (let at = 0; at < out.length; at += MOST_BYTES) {
      const to = out.subarray(at, at + MOST_BYTES);
      this.#wait(
        "recv",
        (request) => calls.MPI_Irecv(to, to.length, byte, peer, ARRAY_TAG, this.#comm, request),
        () => `rank ${peer} has not sent what rank ${this.rank} waits for`,
      );
    }
  }

  /** Runs a call of all processes. */
  #run(kind: ExchangeKind, start: (request: BigUint64Array<ArrayBuffer>) => number): void {
    let tells = true;
    this.#wait(CALLS[kind], start, () => {
      const others = Array.from({ length: this.size }, (_, rank) => rank).filter((rank) => rank !== this.rank);
      const missing = others.filter((rank) => (this.#told.get(rank) ?? 0) < this.#count);
      return missing.length > 0
        ? `of ${this.size} processes ${ranks(missing)} did not come to exchange number ${this.#count}`
        : `exchange number ${this.#count} does not end, although all ${this.size} processes came to it`;
    }, () => {
      if (tells) this.#tell();
      tells = false;
      this.#listen();
    });
  }

  /** Throws a {@link RuntimeError} where another process makes another call. */
  #compare(kind: ExchangeKind, dtype: Elements, bytes: number): void {
    const { calls, handles: { byte } } = this.#mpi;
    const own = new TextEncoder().encode(`${KINDS.indexOf(kind)} ${bytes} ${dtype.name}`.padEnd(COMPARED_BYTES));
    const all = new Uint8Array(own.length * this.size);
    const each = own.length;
    this.#run(kind, (request) => calls.MPI_Iallgather(own, each, byte, all, each, byte, this.#comm, request));
    for (let rank = 0; rank < this.size; rank++) {
      const other = all.subarray(rank * each, (rank + 1) * each);
      if (own.every((value, i) => value === other[i])) continue;
      const [here, there] = [own, other].map((text) => {
        const [kind, bytes, name] = new TextDecoder().decode(text).trim().split(" ");
        return `${CALLS[KINDS[Number(kind)]]}() of ${bytes} bytes of ${name}`;
      });
      const what = `exchange number ${this.#count} is ${here} on rank ${this.rank} and ${there} on rank ${rank}`;
      throw new RuntimeError("argument", CALLS[kind], `${what}: all processes make the same calls in one order`);
    }
  }

  /**
   * Waits for a call. After a second `meanwhile` is called now and then. After the timeout it throws a {@link RuntimeError} with `why`. MPI
   * may still write into the arrays of the call then, so they are kept.
   */
  #wait(
    call: string,
    start: (request: BigUint64Array<ArrayBuffer>) => number,
    why: () => string,
    meanwhile: () => void = () => {},
  ): void {
    const [request, done, status] = [new BigUint64Array(1), new Int32Array(1), new Uint8Array(STATUS_BYTES)];
    this.#check(start(request), call);
    const began = performance.now();
    while (true) {
      this.#check(this.#mpi.calls.MPI_Test(request, done, status), call);
      if (done[0] !== 0) return;
      const waited = performance.now() - began;
      if (waited < SPIN_MS) continue;
      Atomics.wait(this.#cell, 0, 0, waited < TELL_MS ? 0.02 : 1);
      if (waited < TELL_MS) continue;
      meanwhile();
      if (waited < this.#timeout * 1000) continue;
      this.#inUse.push(start, request);
      throw new RuntimeError("timeout", call, `after ${this.#timeout} s ${why()}`);
    }
  }

  /** Tells the others which exchange this process waits for. */
  #tell(): void {
    const { calls, handles: { byte } } = this.#mpi;
    const message = Int32Array.of(this.#count);
    for (let rank = 0; rank < this.size; rank++) {
      if (rank === this.rank) continue;
      const request = new BigUint64Array(1);
      this.#inUse.push(message, request);
      const { byteLength } = message;
      this.#check(calls.MPI_Isend(message, byteLength, byte, rank, WAIT_TAG, this.#telling, request), "send");
    }
  }

  /** Hears what others wait for. */
  #listen(): void {
    const { calls, handles: { byte } } = this.#mpi;
    const [found, status, request] = [new Int32Array(1), new Uint8Array(STATUS_BYTES), new BigUint64Array(1)];
    const message = new Int32Array(1);
    while (true) {
      this.#check(calls.MPI_Iprobe(ANY_SOURCE, WAIT_TAG, this.#telling, found, status), "recv");
      if (found[0] === 0) return;
      const [from] = new Int32Array(status.buffer);
      this.#check(calls.MPI_Irecv(message, message.byteLength, byte, from, WAIT_TAG, this.#telling, request), "recv");
      for (found[0] = 0; found[0] === 0;) this.#check(calls.MPI_Test(request, found, status), "recv");
      this.#told.set(from, message[0]);
    }
  }

  /** A handle that a call makes. */
  #made(make: (out: BigUint64Array<ArrayBuffer>) => number, call: string): Handle {
    const out = new BigUint64Array(1);
    this.#check(make(out), call);
    return Deno.UnsafePointer.create(out[0]);
  }

  #check(status: number, call: string): void {
    checkMpi(this.#mpi, status, call);
  }
}

/** MPI's type of the elements of a dtype, and its bytes. Complex numbers are pairs. */
function elementsOf(dtype: Elements): { readonly type: HandleName; readonly each: number } {
  return dtype.name === "complex64"
    ? { type: "float32", each: 4 }
    : { type: dtype.name as HandleName, each: dtype.bytes };
}

function ranks(list: readonly number[]): string {
  return `${list.length === 1 ? "rank" : "ranks"} ${list.join(", ")}`;
}
