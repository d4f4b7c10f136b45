/**
 * `vkmx serve`: models over HTTP, with the APIs of OpenAI and Anthropic.
 *
 * @module
 */

import { SerialEngine } from "../../server/serial_engine.ts";
import { type Command, command } from "../program.ts";
import { SERVE, serve } from "../serving.ts";

const main: Command = command(
  SERVE,
  async (values) => await serve(values, (loaded, { queue }) => new SerialEngine(loaded, queue)),
);

export default main;
