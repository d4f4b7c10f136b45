/**
 * `vkmx launch`: starts a program in several processes, by the `mpirun` of this machine.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { type Flags, UsageError } from "../flags.ts";
import { type Command, command } from "../program.ts";

const FLAGS = {
  "processes": {
    value: "N",
    help: "how many processes",
    short: "n",
    range: [1, 4096],
    whole: true,
    meant: ["np", "nproc"],
  },
  "hosts": { value: "A,B", help: "machines, which the processes are spread over evenly (this one)" },
} as const satisfies Flags;

/** A starter of processes: how its version says its name, and its arguments. */
interface Starter {
  readonly name: RegExp;
  readonly arguments: (count: number, hosts: readonly string[]) => readonly string[];
}

const STARTERS: readonly Starter[] = [
  {
    name: /Open MPI|OpenRTE|PRRTE/,
    arguments: (count, hosts) => [
      // The CPU device has threads of its own, and processes of one GPU each leave most processors free.
      ...["--oversubscribe", "--bind-to", "none"],
      ...hosts.length > 0
        ? ["--host", hosts.map((host) => `${host}:${Math.ceil(count / hosts.length)}`).join(), ...passed()]
        : [],
    ],
  },
  {
    name: /HYDRA/,
    arguments: (_, hosts) => ["-bind-to", "none", ...hosts.length > 0 ? ["-hosts", hosts.join()] : []],
  },
];

/** Flags that pass the variables of vkmx to other machines. */
function passed(): string[] {
  return Object.keys(Deno.env.toObject()).filter((name) => name.startsWith("VKMX_")).flatMap((name) => ["-x", name]);
}

/** Which one `mpirun` is. */
async function findStarter(): Promise<Starter> {
  let version: string;
  try {
    const { stdout } = await new Deno.Command("mpirun", { args: ["--version"], stderr: "null" }).output();
    version = new TextDecoder().decode(stdout);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new Error("mpirun was not found: install Open MPI (Debian, Ubuntu: apt-get install openmpi-bin)");
  }
  const found = STARTERS.find(({ name }) => name.test(version));
  if (found) return found;
  throw new Error(`mpirun is neither Open MPI's nor MPICH's: it says ${quoted(version.split("\n")[0])}`);
}

/** A module is run by Deno, any other program as it is. */
function programOf(operands: readonly string[]): readonly string[] {
  return /\.m?[jt]s$/.test(operands[0]) ? [Deno.execPath(), "run", "-A", ...operands] : operands;
}

const launch: Command = command(
  {
    name: "vkmx launch",
    operand: "-- PROGRAM [ARGUMENTS]",
    about: `Starts a program in N processes by mpirun, for mx.distributed. A module (.ts, .js) is run by Deno with all
permissions. On machines with several GPUs each process gets one in turn, unless VKMX_DEVICE names one.`,
    flags: FLAGS,
    examples: ["-n 2 -- program.ts", "-n 8 --hosts first,second -- deno run -A program.ts --epochs 3"],
  },
  async ({ processes: n, hosts = "" }, operands) => {
    if (n === undefined) throw new UsageError("Expected how many processes: vkmx launch -n 2 -- program.ts");
    if (operands.length === 0) throw new UsageError("Expected a program: vkmx launch -n 2 -- program.ts");
    const machines = hosts.split(",").filter((host) => host !== "");
    const bad = machines.find((host) => !/^[\w.-]+$/.test(host) || host.startsWith("-"));
    if (bad !== undefined) throw new UsageError(`--hosts has ${quoted(bad)}, expected names of machines`);
    const { arguments: flags } = await findStarter();
    const args = [...flags(n, machines), "-n", String(n), ...programOf(operands)];
    const child = new Deno.Command("mpirun", { args, stdin: "inherit", stdout: "inherit", stderr: "inherit" }).spawn();
    // mpirun hears Ctrl-C too and ends its processes; this waits for that.
    if (Deno.build.os !== "windows") Deno.addSignalListener("SIGINT", () => {});
    if (Deno.build.os !== "windows") Deno.addSignalListener("SIGTERM", () => child.kill("SIGTERM"));
    return (await child.status).code;
  },
);

export default launch;
