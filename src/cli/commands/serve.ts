/**
 * `vkmx serve`: models over HTTP, with the APIs of OpenAI, Anthropic and ollama.
 *
 * @module
 */

import { type Command, command } from "../program.ts";
import { SERVE, serve } from "../serving.ts";

const main: Command = command(SERVE, serve);

export default main;
