/**
 * Opens the MPI library of the machine and calls it. The library is found at run time and never linked. It is Open MPI 4.1 or later, or one
 * with the standard ABI of MPI 5, such as MPICH 5.
 *
 * Open MPI loads plugins that need its symbols, so the library is opened for all to see, by the system's own `dlopen`. Handles of its types
 * are addresses of its variables; those of the standard ABI are fixed numbers.
 *
 * @module
 */

import { environment } from "../environment.ts";
import { RuntimeError } from "../error.ts";

/** A communicator, type, operation or request of the library. */
export type Handle = Deno.PointerValue;

const FUNCTIONS = {
  MPI_Init_thread: { parameters: ["pointer", "pointer", "i32", "buffer"], result: "i32" },
  MPI_Initialized: { parameters: ["buffer"], result: "i32" },
  MPI_Finalize: { parameters: [], result: "i32" },
  MPI_Abort: { parameters: ["pointer", "i32"], result: "i32" },
  MPI_Comm_rank: { parameters: ["pointer", "buffer"], result: "i32" },
  MPI_Comm_size: { parameters: ["pointer", "buffer"], result: "i32" },
  MPI_Comm_split: { parameters: ["pointer", "i32", "i32", "buffer"], result: "i32" },
  MPI_Comm_dup: { parameters: ["pointer", "buffer"], result: "i32" },
  MPI_Comm_set_errhandler: { parameters: ["pointer", "pointer"], result: "i32" },
  MPI_Error_string: { parameters: ["i32", "buffer", "buffer"], result: "i32" },
  MPI_Get_library_version: { parameters: ["buffer", "buffer"], result: "i32" },
  MPI_Iallreduce: {
    parameters: ["buffer", "buffer", "i32", "pointer", "pointer", "pointer", "buffer"],
    result: "i32",
  },
  MPI_Iallgather: {
    parameters: ["buffer", "i32", "pointer", "buffer", "i32", "pointer", "pointer", "buffer"],
    result: "i32",
  },
  MPI_Ireduce_scatter_block: {
    parameters: ["buffer", "buffer", "i32", "pointer", "pointer", "pointer", "buffer"],
    result: "i32",
  },
  MPI_Isend: { parameters: ["buffer", "i32", "pointer", "i32", "i32", "pointer", "buffer"], result: "i32" },
  MPI_Irecv: { parameters: ["buffer", "i32", "pointer", "i32", "i32", "pointer", "buffer"], result: "i32" },
  MPI_Iprobe: { parameters: ["i32", "i32", "pointer", "buffer", "buffer"], result: "i32" },
  MPI_Test: { parameters: ["buffer", "buffer", "buffer"], result: "i32" },
} as const satisfies Record<string, Deno.ForeignFunction>;

type Calls = { readonly [K in keyof typeof FUNCTIONS]: Deno.UnsafeFnPointer<typeof FUNCTIONS[K]>["call"] };

/** Where each handle comes from: the variable of Open MPI, and the number of the standard ABI. */
const HANDLES = {
  world: ["ompi_mpi_comm_world", 0x101],
  returnErrors: ["ompi_mpi_errors_return", 0x143],
  sum: ["ompi_mpi_op_sum", 0x21],
  min: ["ompi_mpi_op_min", 0x22],
  max: ["ompi_mpi_op_max", 0x23],
  byte: ["ompi_mpi_byte", 0x247],
  float32: ["ompi_mpi_float", 0x210],
  float64: ["ompi_mpi_double", 0x214],
  int8: ["ompi_mpi_int8_t", 0x240],
  uint8: ["ompi_mpi_uint8_t", 0x241],
  int16: ["ompi_mpi_int16_t", 0x248],
  uint16: ["ompi_mpi_uint16_t", 0x249],
  int32: ["ompi_mpi_int32_t", 0x250],
  uint32: ["ompi_mpi_uint32_t", 0x251],
  int64: ["ompi_mpi_int64_t", 0x258],
  uint64: ["ompi_mpi_uint64_t", 0x259],
} as const satisfies Record<string, readonly [variable: string, number: number]>;

/** The name of a handle that every library has. */
export type HandleName = keyof typeof HANDLES;

/** Any rank, and bytes of the largest text and status of a library. */
export const [ANY_SOURCE, MAX_TEXT, STATUS_BYTES]: readonly [number, number, number] = [-1, 8192, 64];

/** An MPI library, opened. */
export interface Mpi {
  readonly path: string;
  /** Its functions; each gives 0 or a code of an error. */
  readonly calls: Calls;
  readonly handles: Readonly<Record<HandleName, Handle>>;
}

const [NOW, GLOBAL] = Deno.build.os === "darwin" ? [2, 8] : [2, 0x100];
/** The libraries that have dlopen. */
const LOADERS = Deno.build.os === "darwin" ? ["libSystem.B.dylib"] : ["libc.so.6", "libdl.so.2", "libc.so"];
/** Where an MPI library may be, the better ones first. */
const NAMES = Deno.build.os === "darwin"
  ? ["libmpi.40.dylib", "/opt/homebrew/lib/libmpi.40.dylib", "/usr/local/lib/libmpi.40.dylib", "libmpi_abi.1.dylib"]
  : ["libmpi.so.40", "libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi.so", "libmpi.so.12"];

/** Why there is no library, or the library. It is looked for once. */
let found: Mpi | string | undefined;

/** The MPI library of the machine, or why there is none. `VKMX_MPI` is the path of another one. */
export function findMpi(): Mpi | string {
  return found ??= open();
}

function open(): Mpi | string {
  if (Deno.build.os === "windows") return "MPI libraries of Windows are not supported";
  const loader = openLoader();
  if (typeof loader === "string") return loader;
  const chosen = environment("VKMX_MPI");
  let foreign: string | undefined;
  for (const path of chosen ? [chosen] : NAMES) {
    const library = loader.dlopen(text(path), NOW | GLOBAL);
    if (library === null) continue;
    const symbol = (name: string): Handle => loader.dlsym(library, text(name));
    const isOpen = symbol("ompi_mpi_comm_world") !== null;
    if (!isOpen && symbol("MPI_Abi_get_version") === null) {
      foreign ??= path;
      continue;
    }
    const handles = Object.entries(HANDLES).map(([name, [variable, number]]) =>
      [name, isOpen ? symbol(variable) : Deno.UnsafePointer.create(BigInt(number))] as const
    );
    const calls = Object.entries(FUNCTIONS).map(([name, type]) => [name, symbol(name), type] as const);
    const missing = [...handles, ...calls].find(([, pointer]) => pointer === null);
    if (missing) return `${path} has no ${missing[0]}: install Open MPI 4.1 or later`;
    return {
      path,
      handles: Object.fromEntries(handles) as Mpi["handles"],
      calls: Object.fromEntries(
        calls.map(([name, pointer, type]) => {
          const fn = new Deno.UnsafeFnPointer<Deno.ForeignFunction>(pointer as Deno.PointerObject<never>, type);
          return [name, fn.call.bind(fn)];
        }),
      ) as unknown as Calls,
    };
  }
  if (foreign !== undefined) {
    return `${foreign} is neither Open MPI nor of the standard ABI of MPI 5: install Open MPI (Debian: openmpi-bin)`;
  }
  return chosen
    ? `VKMX_MPI is ${JSON.stringify(chosen)}, which cannot be opened`
    : "there is no MPI library: install Open MPI (Debian, Ubuntu: apt-get install openmpi-bin; macOS: brew install open-mpi)";
}

/** The system's functions that open libraries, or why they may not be called. */
function openLoader(): {
  dlopen(name: BufferSource, mode: number): Handle;
  dlsym(at: Handle, name: BufferSource): Handle;
} | string {
  let cause: unknown;
  for (const name of LOADERS) {
    try {
      return Deno.dlopen(name, {
        dlopen: { parameters: ["buffer", "i32"], result: "pointer" },
        dlsym: { parameters: ["pointer", "buffer"], result: "pointer" },
      }).symbols;
    } catch (error) {
      if (error instanceof Deno.errors.NotCapable) return "MPI needs all of --allow-ffi";
      cause = error;
    }
  }
  return `libraries cannot be opened here: ${cause instanceof Error ? cause.message : cause}`;
}

function text(value: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(`${value}\0`);
}

/** Throws a {@link RuntimeError} with the library's text unless a call gave 0. */
export function checkMpi({ calls }: Mpi, status: number, call: string): void {
  if (status === 0) return;
  const [bytes, length] = [new Uint8Array(MAX_TEXT), new Int32Array(1)];
  calls.MPI_Error_string(status, bytes, length);
  throw new RuntimeError("unavailable", call, new TextDecoder().decode(bytes.subarray(0, length[0])));
}
