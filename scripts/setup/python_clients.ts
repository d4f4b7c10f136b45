/**
 * The clients of the APIs of OpenAI, Anthropic and ollama for Python, which tests ask the server with: from PyPI into .tools.
 *
 * @module
 */

import { type Pinned, pinnedIn, providePackages, type Python } from "./pip.ts";

const REQUIREMENTS = "python_clients.txt";

/** The clients and what they need, in the versions that `scripts/setup/python_clients.txt` pins. */
export const PYTHON_CLIENTS: readonly Pinned[] = pinnedIn(REQUIREMENTS);

/** Provides openai, anthropic and ollama. Undefined, after a line that says why, if they cannot be had. */
export function providePythonClients(): Promise<Python | undefined> {
  return providePackages("clients for Python", REQUIREMENTS, "python_clients", ["openai", "anthropic", "ollama"]);
}
