/**
 * Scripts that have a shell complete commands and flags, made from the tables of both.
 *
 * @module
 */

import type { Flag, Flags } from "./flags.ts";
import type { Program } from "./program.ts";

/** A command as the scripts name it. */
export interface CompletedCommand {
  readonly name: string;
  readonly summary: string;
  readonly program: Program<Flags>;
}

/** A flag in a completion script. */
interface Word {
  /** With its dashes. */
  readonly word: string;
  readonly help: string;
  /** Whether a value follows. */
  readonly takes: boolean;
}

const HELP: Flag = { help: "show what it takes" };

function wordsOf({ flags }: Program<Flags>): Word[] {
  return Object.entries<Flag>({ ...flags, help: HELP }).map(([name, { help, value }]) => ({
    word: `--${name}`,
    help,
    takes: value !== undefined,
  }));
}

/** A text in single quotes of a shell. */
function quotedFor(shell: Shell, text: string): string {
  return shell === "fish"
    ? `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`
    : `'${text.replaceAll("'", "'\\''")}'`;
}

function bash(commands: readonly CompletedCommand[]): string {
  const cases = commands.map(({ name, program }) => {
    const words = wordsOf(program);
    const valued = words.filter(({ takes }) => takes).map(({ word }) => word);
    return `    ${name}) words=${quotedFor("bash", words.map(({ word }) => word).join(" "))}; valued=${
      quotedFor("bash", ` ${valued.join(" ")} `)
    } ;;`;
  });
  return `# Completions of vkmx for bash: eval "$(vkmx completions bash)"
_vkmx() {
  local current=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]} words valued
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W ${
    quotedFor("bash", [...commands.map(({ name }) => name), "help"].join(" "))
  } -- "$current"))
    return
  fi
  case \${COMP_WORDS[1]} in
${cases.join("\n")}
    help) COMPREPLY=($(compgen -W ${
    quotedFor("bash", commands.map(({ name }) => name).join(" "))
  } -- "$current")); return ;;
    *) return ;;
  esac
  if [[ $valued != *" $before "* && $current == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  fi
}
complete -o default -F _vkmx vkmx
`;
}

function zsh(commands: readonly CompletedCommand[]): string {
  const described = (name: string, text: string): string =>
    quotedFor("zsh", `${name.replaceAll(":", "\\:")}:${text.replaceAll("\\", "\\\\")}`);
  const escaped = (help: string): string => help.replaceAll(/[\\[\]:]/g, "\\$&");
  const cases = commands.map(({ name, program }) => {
    const rows = wordsOf(program).map(({ word, help, takes }) =>
      quotedFor("zsh", `*${word}[${escaped(help)}]${takes ? ":value:_files" : ""}`)
    );
    return `    ${name}) _arguments -S ${rows.join(" ")} '*:operand:_files' ;;`;
  });
  return `#compdef vkmx
# Completions of vkmx for zsh: eval "$(vkmx completions zsh)", after compinit
_vkmx() {
  if (( CURRENT == 2 )); then
    local -a commands=(${
    [...commands, { name: "help", summary: "show the commands, or what one takes" }]
      .map(({ name, summary }) => described(name, summary)).join(" ")
  })
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
${cases.join("\n")}
  esac
}
if [[ $funcstack[1] == _vkmx ]]; then _vkmx "$@"; else compdef _vkmx vkmx; fi
`;
}

function fish(commands: readonly CompletedCommand[]): string {
  const lines = commands.flatMap(({ name, summary, program }) => [
    `complete -c vkmx -n __fish_use_subcommand -a ${name} -d ${quotedFor("fish", summary)}`,
    ...wordsOf(program).map(({ word, help, takes }) =>
      `complete -c vkmx -n '__fish_seen_subcommand_from ${name}' -l ${word.slice(2)}${takes ? " -r" : ""} -d ${
        quotedFor("fish", help)
      }`
    ),
  ]);
  return `# Completions of vkmx for fish: vkmx completions fish | source\n${lines.join("\n")}\n`;
}

/** The shells, and what makes the script of each. */
export const SHELLS = { bash, zsh, fish } as const satisfies Record<
  string,
  (commands: readonly CompletedCommand[]) => string
>;

/** A shell's name. */
export type Shell = keyof typeof SHELLS;
