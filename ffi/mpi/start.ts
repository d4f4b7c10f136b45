/**
 * The start and the end of MPI in this process.
 *
 * A process that ends well finalizes MPI. One that fails aborts it, so that no other waits for it for ever.
 *
 * @module
 */

import { environment } from "../environment.ts";
import { RuntimeError } from "../error.ts";
import { onExit } from "../exit.ts";
import { checkMpi, findMpi, type Mpi } from "./library.ts";
import { ABI_HASH } from "../symbols.ts";
import { VERSION } from "../version.ts";
import { MpiGroup } from "./group.ts";

/** Variables that mpirun sets: Open MPI's, PMIx's, and those of MPICH and its relatives. */
const STARTED = ["OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"];

/** Whether mpirun started this process, as far as it may know. */
export function startedByMpi(): boolean {
  return STARTED.some((name) => environment(name) !== undefined);
}

let world: MpiGroup | undefined;

/** All processes that mpirun started. Throws a {@link RuntimeError} without a library, or if processes run different versions. */
export function startMpi(timeout: number): MpiGroup {
  if (world) return world;
  const mpi = findMpi();
  if (typeof mpi === "string") throw new RuntimeError("missing", "init", mpi);
  const { calls, handles } = mpi;
  const flag = new Int32Array(1);
  checkMpi(mpi, calls.MPI_Initialized(flag), "init");
  if (flag[0] === 0) {
    checkMpi(mpi, calls.MPI_Init_thread(null, null, 0, flag), "init"); // one thread alone calls it
    endWith(mpi);
  }
  const made = new MpiGroup(mpi, handles.world, timeout);
  checkVersions(made);
  return world = made;
}

/** Ends MPI when the program ends. */
function endWith({ calls, handles }: Mpi): void {
  let failed = false;
  for (const type of ["error", "unhandledrejection"]) {
    globalThis.addEventListener(type, (event) => failed ||= !event.defaultPrevented);
  }
  onExit(() => {
    if (failed || Deno.exitCode !== 0) calls.MPI_Abort(handles.world, Deno.exitCode || 1);
    else calls.MPI_Finalize();
  });
}

const BYTES = { name: "uint8", bytes: 1 } as const;

/** Throws unless all processes are of one version. */
function checkVersions(group: MpiGroup): void {
  const own = new Uint8Array(64);
  new TextEncoder().encodeInto(`${VERSION} (${ABI_HASH})`, own);
  const all = group.exchange("gather", BYTES, own, own.length * group.size, -1);
  const versions = Array.from({ length: group.size }, (_, rank) => {
    const bytes = all.subarray(rank * own.length, (rank + 1) * own.length);
    return new TextDecoder().decode(bytes).replace(/\0+$/, "");
  });
  const other = versions.findIndex((version) => version !== versions[group.rank]);
  if (other < 0) return;
  const found = `rank ${other} runs vkmx ${versions[other]}, and rank ${group.rank} ${versions[group.rank]}`;
  throw new RuntimeError("abi", "init", `${found}: install one version everywhere`);
}
