/** The chat page in Chromium, against a server whose answers are canned. */

import { assert, assertEquals } from "@std/assert";
import { BrowserPage, findChromium } from "../support/browser/chromium.ts";
import { ChatServer, type ChatServerOptions } from "../support/browser/chat_server.ts";
import type * as mx from "../../mod.ts";
import { Consent } from "../../src/mcp/consent.ts";
import { McpTools } from "../../src/mcp/tools.ts";
import { needing } from "../support/needs.ts";
import { mcpProgram } from "../support/processes/mcp_server.ts";
import { ScriptedEngine } from "../support/server/scripted_engine.ts";
import { TestServer } from "../support/server/served.ts";

const CHARACTERS = (text: string) => [...text].map((content) => ({ content }));

/** The first answer breaks off, the second one does not. */
const answers: (readonly ({ readonly content: string } | "break")[])[] = [
  [...CHARACTERS("Half"), "break"],
  CHARACTERS("Whole"),
];

/** A test of the page, opened in a window for desktops with a light system. */
async function pageTest(
  name: string,
  options: ChatServerOptions,
  body: (page: BrowserPage, server: ChatServer) => Promise<void>,
): Promise<void> {
  Deno.test({
    ...await needing(name, "chromium"),
    fn: async () => {
      await using server = new ChatServer(options);
      await using page = await BrowserPage.open((await findChromium())!);
      await page.show(1200, 800, "light");
      await page.go(server.url);
      if (options.key === undefined) await page.until("document.querySelectorAll('#model option').length === 2");
      await body(page, server);
    },
  });
}

/** Writes a message and waits for the whole answer. */
async function ask(page: BrowserPage, message: string): Promise<void> {
  const before = await page.evaluate("document.querySelectorAll('.stats').length");
  await page.type(message);
  await page.press("Enter");
  await page.until(`document.querySelectorAll('.stats').length > ${before}`);
}

const textOf = (page: BrowserPage, selector: string): Promise<unknown> =>
  page.evaluate(`document.querySelector(${JSON.stringify(selector)})?.innerText`);

await pageTest("an answer is shown as it comes, and its request has the settings", {
  answer: () => [...CHARACTERS("Hello"), "wait"],
}, async (page, server) => {
  await page.evaluate("document.getElementById('settings').click()");
  await page.evaluate(`{
    const form = document.querySelector("#settings-dialog form");
    for (const [name, value] of Object.entries({ system: "Be brief.", temperature: "0.5", top_k: "20", max_tokens: "99", thinking: "off" })) {
      form.elements[name].value = value;
    }
    form.querySelector("[value=save]").click();
  }`);
  await page.evaluate("document.getElementById('input').focus()");
  await page.type("Hi");
  await page.press("Enter");
  await page.until("document.querySelector('.assistant > .body')?.innerText === 'Hello'");
  assertEquals(await page.evaluate("document.getElementById('log').ariaBusy"), "true");
  assertEquals(server.bodies, [{
    model: "tiny-qwen3",
    messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Hi" }],
    stream: true,
    stream_options: { include_usage: true },
    temperature: 0.5,
    top_k: 20,
    max_tokens: 99,
    chat_template_kwargs: { enable_thinking: false },
  }]);
});

await pageTest("Escape stops an answer, which stays, Enter with Shift begins a line, and tokens are counted", {
  answer: (message) => message.includes("wait") ? [...CHARACTERS("So far"), "wait"] : CHARACTERS("Whole"),
}, async (page, server) => {
  await page.type("wait");
  await page.press("Enter", 8);
  assertEquals(server.bodies, []);
  await page.type("please");
  await page.press("Enter");
  await page.until("document.querySelector('.assistant > .body')?.innerText === 'So far'");
  assertEquals(await page.evaluate("document.getElementById('stop').hidden"), false);
  await page.press("Escape");
  await page.until("document.querySelector('.stats')?.innerText === 'Stopped'");
  assertEquals(await page.evaluate("document.getElementById('stop').hidden"), true);
  for (let tries = 0; server.aborted === 0 && tries < 500; tries++) await new Promise((r) => setTimeout(r, 10));
  assertEquals(server.aborted, 1);
  await ask(page, "go on");
  assertEquals(server.bodies.map((body) => body.messages), [
    [{ role: "user", content: "wait\nplease" }],
    [{ role: "user", content: "wait\nplease" }, { role: "assistant", content: "So far" }, {
      role: "user",
      content: "go on",
    }],
  ]);
  assert(/^5 tokens, [\d.]+ tokens\/s, prompt 12$/.test(await textOf(page, "article:last-of-type .stats") as string));
});

await pageTest("thoughts are folded and open by a click", {
  answer: () => [{ reasoning_content: "I see " }, { reasoning_content: "it." }, ...CHARACTERS("Yes.")],
}, async (page) => {
  await ask(page, "Do you?");
  assertEquals(await page.evaluate("document.querySelector('details').open"), false);
  assertEquals(await textOf(page, ".assistant > .body"), "Yes.");
  await page.evaluate("document.querySelector('summary').click()");
  assertEquals(await textOf(page, "details .body"), "I see it.");
});

/** Markdown, and the HTML that it stands for. */
const MARKDOWN: readonly (readonly [string, string])[] = [
  ["a **b** *c* `d` ~~e~~", "<p>a <strong>b</strong> <em>c</em> <code>d</code> <s>e</s></p>"],
  ["snake_case_name and 2*3*4", "<p>snake_case_name and 2<em>3</em>4</p>"],
  ["# One\ntwo", "<h3>One</h3><p>two</p>"],
  ["- a\n- b\n  - c\n\nd", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><p>d</p>"],
  ["3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'],
  ["> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"],
  ["a\n\n---\nb", "<p>a</p><hr><p>b</p>"],
  ["\\*a\\* `**b**`", "<p>*a* <code>**b**</code></p>"],
  [
    "| a | b |\n|---|:-:|\n| `x` | 2 |",
    '<div class="table"><table><thead><tr><th>a</th><th class="center">b</th></tr></thead>' +
    '<tbody><tr><td><code>x</code></td><td class="center">2</td></tr></tbody></table></div>',
  ],
  [
    "[a](https://example.org/x_(y)) https://example.org/z.",
    '<p><a href="https://example.org/x_(y)" target="_blank" rel="noopener noreferrer">a</a> ' +
    '<a href="https://example.org/z" target="_blank" rel="noopener noreferrer">https://example.org/z</a>.</p>',
  ],
  ["[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>"],
  ["[a](data:text/html,x) [b](/c)", "<p>[a](data:text/html,x) [b](/c)</p>"],
  ["<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>"],
  ["**<b>x</b>**", "<p><strong>&lt;b&gt;x&lt;/b&gt;</strong></p>"],
  [
    '[<i>](https://example.org/"onclick=)',
    '<p><a href="https://example.org/%22onclick=" target="_blank" rel="noopener noreferrer">&lt;i&gt;</a></p>',
  ],
];

await pageTest("Markdown is shown, HTML in it is text, and no address runs code", {
  answer: () =>
    CHARACTERS('```html\n<script>document.title = "bad"</script>\n```\n<img src=x onerror="document.title = `bad`">'),
}, async (page) => {
  for (const [text, html] of MARKDOWN) {
    const shown = `{ const e = document.createElement("div"); showMarkdown(e, ${JSON.stringify(text)}); e.innerHTML }`;
    assertEquals(await page.evaluate(shown), html, text);
  }
  await ask(page, "Be bad");
  assertEquals(await textOf(page, ".code code"), '<script>document.title = "bad"</script>');
  assertEquals(await page.evaluate("document.querySelectorAll('#log img, #log script').length"), 0);
  assertEquals(await page.evaluate("document.title"), "Be bad – vkmx");
  // Text that grows shows the same as the whole text.
  const all = MARKDOWN.map(([text]) => text).join("\n\n");
  const grown = `{ const [a, b] = [document.createElement("div"), document.createElement("div")];
    const text = ${JSON.stringify(all)};
    for (let n = 1; n <= text.length; n++) showMarkdown(a, text.slice(0, n));
    showMarkdown(b, text);
    a.innerHTML === b.innerHTML }`;
  assertEquals(await page.evaluate(grown), true);
  const many = `{ const e = document.createElement("div"); const begun = performance.now();
    for (const text of ["*".repeat(20000), "[".repeat(20000), "> ".repeat(5000), "a_".repeat(10000), "\`".repeat(9999)]) showMarkdown(e, text);
    performance.now() - begun < 20000 }`;
  assertEquals(await page.evaluate(many), true, "hostile texts take no time without end");
});

await pageTest("conversations are kept, renamed, deleted, edited and answered again", {
  answer: (message) => CHARACTERS(`To ${message}`),
}, async (page, server) => {
  await ask(page, "first");
  await page.evaluate("document.getElementById('new').click()");
  await ask(page, "second");
  await page.go(`${server.url}?again`);
  const names = "[...document.querySelectorAll('#list .open')].map((e) => e.innerText).join()";
  assertEquals(await page.evaluate(names), "second,first");
  assertEquals(await textOf(page, ".assistant > .body"), "To second");
  await page.evaluate("document.querySelector('[aria-label=\"Rename first\"]').click()");
  await page.evaluate("document.querySelector('#name-dialog input').value = 'Renamed <b>'");
  await page.evaluate("document.querySelector('#name-dialog [value=save]').click()");
  await page.until(`${names} === "second,Renamed <b>"`);
  await page.evaluate("document.querySelector('[aria-label=\"Delete second\"]').click()");
  await page.evaluate("document.querySelector('#delete-dialog [data-cancel]').click()");
  assertEquals(await page.evaluate(names), "second,Renamed <b>");
  await page.evaluate("document.querySelector('[aria-label=\"Delete second\"]').click()");
  await page.evaluate("document.querySelector('#delete-dialog [value=save]').click()");
  await page.until(`${names} === "Renamed <b>"`);
  await page.evaluate("document.querySelector('#list .open').click()");
  assertEquals(await textOf(page, ".assistant > .body"), "To first");
  await page.evaluate("document.querySelector('[aria-label=\"Answer again\"]').click()");
  await page.until("document.querySelector('.stats') && document.getElementById('stop').hidden");
  await page.evaluate("document.querySelector('[aria-label=\"Edit the message\"]').click()");
  await page.evaluate("document.activeElement.value = 'third'");
  await page.press("Enter");
  await page.until(
    "document.querySelector('.assistant > .md')?.innerText === 'To third' && document.querySelector('.stats')",
  );
  assertEquals(server.bodies.map((body) => (body.messages as { content: string }[]).map(({ content }) => content)), [
    ["first"],
    ["second"],
    ["first"],
    ["third"],
  ]);
});

await pageTest("an answer that breaks off is kept, and is asked for again by a click", {
  answer: () => answers.shift()!,
}, async (page) => {
  await page.type("Hi");
  await page.press("Enter");
  await page.until("document.querySelector('[role=alert]')");
  assertEquals(await textOf(page, ".assistant > .body"), "Half");
  assertEquals(await textOf(page, "[role=alert] span"), "The connection broke: it ended before the answer did");
  await page.evaluate("document.querySelector('[role=alert] button').click()");
  await page.until("document.querySelector('.stats')");
  assertEquals(await textOf(page, ".assistant > .body"), "Whole");
  assertEquals(await page.evaluate("document.querySelectorAll('[role=alert]').length"), 0);
});

await pageTest("a server with a key is asked again with the one that the user gives", {
  answer: () => CHARACTERS("Yes"),
  key: "secret",
}, async (page) => {
  await page.until("document.getElementById('key-dialog').open");
  await page.type("secret");
  await page.press("Enter");
  await page.until("document.querySelectorAll('#model option').length === 2");
  await page.evaluate("document.getElementById('input').focus()");
  await ask(page, "May I?");
  assertEquals(await textOf(page, ".assistant > .body"), "Yes");
});

/** The relative luminance of a color as browsers write it, by WCAG 2. */
function luminance(color: string): number {
  const [r, g, b] = color.match(/[\d.]+/g)!.map((part) => Number(part) / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

await pageTest("dark and light follow the system, or the switch, with enough contrast", {
  answer: () => [{ reasoning_content: "Hm" }, ...CHARACTERS("[a](https://example.org) `b`")],
}, async (page, server) => {
  await ask(page, "Hi");
  await page.evaluate("document.querySelector('details').open = true");
  const dark = async () =>
    luminance(await page.evaluate("getComputedStyle(document.body).backgroundColor") as string) < 0.2;
  const contrasts =
    `[...document.querySelectorAll("h1, #new, .open, .user .body, .assistant .md a, .assistant code, summary, details p, .stats, #hint")].map((e) => {
    let back = e;
    const colorOf = (one) => getComputedStyle(one).backgroundColor;
    while (colorOf(back) === "rgba(0, 0, 0, 0)") back = back.parentElement;
    return [e.className || e.tagName, getComputedStyle(e).color, colorOf(back)];
  })`;
  for (const scheme of ["light", "dark"] as const) {
    await page.show(1200, 800, scheme);
    assertEquals(await dark(), scheme === "dark");
    for (const [name, front, back] of await page.evaluate(contrasts) as [string, string, string][]) {
      const [low, high] = [luminance(front), luminance(back)].sort((a, b) => a - b);
      assert((high + 0.05) / (low + 0.05) >= 4.5, `${name} in ${scheme}: ${front} on ${back}`);
    }
  }
  await page.evaluate("document.getElementById('theme').click()");
  assertEquals([await dark(), await page.evaluate("document.getElementById('theme').ariaLabel")], [
    false,
    "Theme: light",
  ]);
  await page.go(`${server.url}?again`);
  assertEquals(await dark(), false);
  await page.evaluate("document.getElementById('theme').click()");
  await page.show(1200, 800, "light");
  assertEquals(await dark(), true);
});

await pageTest("keys reach everything in order, every control has a name, and phones have a menu", {
  answer: () => CHARACTERS("Hello"),
}, async (page) => {
  assertEquals(await page.evaluate("document.activeElement.id"), "input");
  await ask(page, "Hi");
  const unnamed = `[...document.querySelectorAll("button, input, select, textarea")].filter((e) =>
    !(e.ariaLabel || e.innerText?.trim() || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)`;
  assertEquals(await page.evaluate(unnamed), []);
  await page.evaluate("document.activeElement.blur(), document.body.focus()");
  const order: unknown[] = [];
  for (let i = 0; i < 14; i++) {
    await page.press("Tab");
    order.push(
      await page.evaluate(
        "document.activeElement.id || document.activeElement.ariaLabel || document.activeElement.innerText",
      ),
    );
  }
  const places = [
    "new",
    "Hi",
    "Rename Hi",
    "Delete Hi",
    "model",
    "theme",
    "settings",
    "Edit the message",
    "Copy the answer",
    "Answer again",
    "input",
  ]
    .map((one) => order.indexOf(one));
  assertEquals(places, [...places].sort((a, b) => a - b), JSON.stringify(order));
  assert(!places.includes(-1), JSON.stringify(order));
  assertEquals(await page.evaluate("document.getElementById('status').innerText"), "Answer: Hello");

  await page.show(390, 700, "light");
  assertEquals(await page.evaluate("document.documentElement.scrollWidth"), 390);
  await page.until("getComputedStyle(document.getElementById('side')).visibility === 'hidden'");
  await page.evaluate("document.getElementById('menu').click()");
  await page.until("getComputedStyle(document.getElementById('side')).visibility === 'visible'");
  assertEquals(await page.evaluate("document.getElementById('menu').ariaExpanded"), "true");
  await page.press("Escape");
  await page.until("getComputedStyle(document.getElementById('side')).visibility === 'hidden'");
  assertEquals(await page.evaluate("document.activeElement.id"), "menu");
});

await pageTest("the policy lets the page's own script run and nothing else", {
  answer: () => CHARACTERS("Hello"),
}, async (page) => {
  await ask(page, "Hi");
  assertEquals(page.complaints, []);
  await page.evaluate(
    `document.body.append(Object.assign(document.createElement("script"), { textContent: "window.ran = true" }))`,
  );
  await page.evaluate(
    `document.body.insertAdjacentHTML("beforeend", "<button id=bad onclick='window.ran = true'></button>")`,
  );
  await page.evaluate("document.getElementById('bad').click()");
  assertEquals(await page.evaluate("window.ran"), undefined);
  assertEquals(await page.evaluate("fetch('https://example.org').then(() => 'sent', () => 'refused')"), "refused");
});

/** A page of a real server, whose model asks for a tool and then says what came of it. */
async function toolPageTest(
  name: string,
  body: (page: BrowserPage, engine: ScriptedEngine) => Promise<void>,
): Promise<void> {
  Deno.test({
    ...await needing(name, "chromium", "mcp sdk"),
    sanitizeOps: false, // the SDK of the tools' server leaves timers that keep no program
    sanitizeResources: false,
    fn: async () => {
      await using tools = await McpTools.open([{ name: "s", ...mcpProgram(), env: {} }]);
      const engine = new ScriptedEngine(({ prompt }) => {
        const last = (prompt as readonly mx.lm.ChatMessage[]).at(-1)!;
        if (last.role === "tool") return [{ text: `It said ${last.content}.` }];
        return [{ text: "Let me see." }, {
          toolCalls: [{ function: { name: "s__echo", arguments: { text: "<b>hi" } } }],
        }];
      });
      await using server = await TestServer.start({
        engines: { scripted: () => engine },
        mcp: { tools, consent: new Consent([]), maxRounds: 4 },
      });
      await using page = await BrowserPage.open((await findChromium())!);
      await page.show(1200, 800, "light");
      await page.go(server.url);
      await page.until("document.getElementById('tools-field').hidden === false");
      await body(page, engine);
    },
  });
}

const press = (page: BrowserPage, label: string): Promise<unknown> =>
  page.evaluate(
    `[...document.querySelectorAll(".ask button")].find((b) => b.innerText === ${JSON.stringify(label)}).click()`,
  );

await toolPageTest(
  "a call is asked about, made, shown in a line and sent again with the next message",
  async (page, engine) => {
    await page.type("Do it");
    await page.press("Enter");
    await page.until("document.querySelector('.ask')");
    assertEquals(await textOf(page, ".call pre"), '{"text":"<b>hi"}');
    await press(page, "Allow");
    await page.until("document.querySelector('.stats')");
    assertEquals(await textOf(page, ".call summary"), 's.echo {"text":"<b>hi"} 5 bytes');
    assertEquals(await textOf(page, ".assistant > .body"), "It said <b>hi.");
    await page.type("Again");
    await page.press("Enter");
    await page.until("document.querySelector('.ask')");
    await press(page, "Refuse");
    await page.until("document.querySelectorAll('.stats').length === 2");
    const roles = (engine.requests[2].prompt as readonly mx.lm.ChatMessage[]).slice(0, 5).map(({ role, content }) =>
      `${role} ${content}`
    );
    assertEquals(roles, [
      "user Do it",
      "assistant Let me see.",
      "tool <b>hi",
      "assistant It said <b>hi.",
      "user Again",
    ]);
    assertEquals(
      await textOf(page, "article:last-of-type > .body"),
      'It said {"error":"the user did not allow this call"}.',
    );
    await page.type("Always");
    await page.press("Enter");
    await page.until("document.querySelector('.ask')");
    await press(page, "Always allow this tool");
    await page.until("document.querySelectorAll('.stats').length === 3");
    await ask(page, "Once more"); // without a question
    assertEquals(await textOf(page, "article:last-of-type > .body"), "It said <b>hi.");
    assertEquals(engine.requests.length, 8);
  },
);

await toolPageTest(
  "Escape ends an answer that waits for consent, and no tools are offered where they are off",
  async (page, engine) => {
    await page.type("Do it");
    await page.press("Enter");
    await page.until("document.querySelector('.ask')");
    await page.press("Escape");
    await page.until("document.querySelector('.stats')?.innerText === 'Stopped'");
    assertEquals(await textOf(page, ".call summary"), 's.echo {"text":"<b>hi"} was stopped');
    await page.evaluate("document.getElementById('settings').click()");
    await page.evaluate(`{
    const form = document.querySelector("#settings-dialog form");
    form.elements.tools.value = "off";
    form.querySelector("[value=save]").click();
  }`);
    await page.evaluate("document.getElementById('input').focus()");
    await ask(page, "Again");
    assertEquals(engine.requests.map(({ tools = [] }) => tools.length > 0), [true, false]);
  },
);
