/**
 * `vkmx kernel`: adds a kernel to Jupyter that is Deno's, with interrupts that it survives, or removes it.
 *
 * @module
 */

import { type Flags, UsageError } from "../flags.ts";
import { addKernel, kernelsFolder, removeKernel } from "../kernel/spec.ts";
import { note, print } from "../output.ts";
import { type Command, command } from "../program.ts";

const FLAGS = {
  "user": { help: "for the user (the default): into JUPYTER_DATA_DIR or Jupyter's folder of this system" },
  "prefix": { value: "DIR", help: "into an environment, such as a Python venv: below DIR/share/jupyter" },
  "name": { value: "NAME", help: "name of the kernel's folder (vkmx)" },
  "display-name": { value: "TEXT", help: "name in the list of kernels (Deno (vkmx))" },
  "force": { help: "also replace or remove a kernel that is not vkmx's" },
  "remove": { help: "remove the kernel" },
} as const satisfies Flags;

const PROGRAM = {
  name: "vkmx kernel",
  about: "Adds Deno to the kernels of Jupyter, so that Stop ends an answer and keeps the kernel. Prints where it is.",
  flags: FLAGS,
  examples: ["", "--prefix .venv", "--remove"],
};

const kernel: Command = command(PROGRAM, (values) => {
  const { name = "vkmx", prefix, force = false } = values;
  if (!/^[\w.-]+$/.test(name) || /^\.+$/.test(name)) {
    throw new UsageError(`--name is ${JSON.stringify(name)}, expected letters, digits, ".", "_" and "-"`);
  }
  if (values.user && prefix !== undefined) throw new UsageError("--user and --prefix are two places: give one");
  const kernels = kernelsFolder(prefix);
  if (values.remove) {
    print(`${removeKernel(kernels, name, force)}\n`);
    note("The kernel was removed\n");
    return Promise.resolve(0);
  }
  const display = values["display-name"] ?? "Deno (vkmx)";
  print(`${addKernel(kernels, { name, display }, force)}\n`);
  note(`Start Jupyter and choose the kernel "${display}"; it runs import * as mx from "jsr:@vkmx/vkmx" in a cell\n`);
  return Promise.resolve(0);
});

export default kernel;
