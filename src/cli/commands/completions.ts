/**
 * `vkmx completions`: prints a script that has a shell complete commands and flags.
 *
 * @module
 */

import { type Shell, SHELLS } from "../completions.ts";
import { checkOneOf, UsageError } from "../flags.ts";
import { print } from "../output.ts";
import { type Command, command } from "../program.ts";

const NAMES = Object.keys(SHELLS) as readonly Shell[];

const PROGRAM = {
  name: "vkmx completions",
  operand: NAMES.join(" | "),
  about: `Prints a script by which a shell completes commands and flags of vkmx.

  eval "$(vkmx completions bash)"      in ~/.bashrc, likewise with zsh in ~/.zshrc
  vkmx completions fish | source       in ~/.config/fish/config.fish`,
  flags: {},
  examples: [...NAMES],
};

/** Rows of the table of commands. */
type CommandRows = Readonly<
  Record<string, { readonly summary: string; readonly load: () => Promise<{ readonly default: Command }> }>
>;

/** The command, for a table of commands. */
export function completionsOf(rows: CommandRows): Command {
  return command(PROGRAM, async (_, operands) => {
    if (operands.length !== 1) throw new UsageError(`Expected one shell: ${NAMES.join(", ")}`);
    const shell = checkOneOf("The shell", operands[0], NAMES);
    const commands = await Promise.all(
      Object.entries(rows).map(async ([name, { summary, load }]) => {
        const { default: { program } } = await load();
        return { name, summary, program };
      }),
    );
    print(SHELLS[shell](commands));
    return 0;
  });
}
