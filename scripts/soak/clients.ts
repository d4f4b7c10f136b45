/**
 * Clients of a server, all at once: each asks for another sum, and must get the answer that this prompt gets alone.
 *
 * @module
 */

/** Most sums that differ. */
export const MAX_CLIENTS = 1600;

/** The sum of a client: two numbers of one or two digits, as the embedded model learned them. */
function questionOf(client: number): string {
  return `What is ${10 + client % 40} + ${10 + Math.floor(client / 40) % 40}?`;
}

/** The answer that a client gets. Every other one reads events. Throws an Error for any other status than 200. */
async function ask(url: string, client: number): Promise<string> {
  const stream = client % 2 === 1;
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({
      messages: [{ role: "user", content: questionOf(client) }],
      chat_template_kwargs: { enable_thinking: false },
      temperature: 0,
      max_tokens: 12,
      stream,
    }),
  });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`client ${client}: status ${response.status}: ${text}`);
  if (!stream) return JSON.parse(text).choices[0].message.content;
  const blocks = text.split("\n\n").slice(0, -1).filter((block) => !block.startsWith(":")); // comments keep connections alive
  const events = blocks.map((block) => block.replace(/^data: /, ""));
  if (events.pop() !== "[DONE]") throw new Error(`client ${client}: the stream broke off: ${text}`);
  return events.map((event) => JSON.parse(event).choices[0].delta.content ?? "").join("");
}

/** The answers of `count` clients that ask one after the other. */
export async function askAlone(url: string, count: number): Promise<readonly string[]> {
  const answers: string[] = [];
  for (let client = 0; client < count; client++) answers.push(await ask(url, client));
  return answers;
}

/** Lets a client for each answer ask at once. Throws an Error that counts those without an answer and those with another one. */
export async function askTogether(url: string, alone: readonly string[]): Promise<void> {
  const results = await Promise.allSettled(alone.map((_, client) => ask(url, client)));
  const lost = results.flatMap((result) => result.status === "rejected" ? [String(result.reason)] : []);
  const mixed = results.flatMap((result, client) =>
    result.status === "fulfilled" && result.value !== alone[client]
      ? [`${questionOf(client)} ${JSON.stringify(result.value)}, alone ${JSON.stringify(alone[client])}`]
      : []
  );
  if (lost.length + mixed.length === 0) return;
  throw new Error(`${lost.length} lost, ${mixed.length} mixed: ${[...lost, ...mixed].slice(0, 5).join("; ")}`);
}
