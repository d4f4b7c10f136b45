/**
 * A conversation with a language model on the terminal: `vkmx chat`.
 *
 *     deno run -A examples/chat.ts --model DIR
 *
 * @module
 */

import chat from "../src/cli/commands/chat.ts";
import { runMain } from "../src/cli/program.ts";

await runMain({ ...chat.program, name: "chat.ts" }, chat.main);
