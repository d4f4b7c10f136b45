/**
 * The chat page and the policy under which a browser runs it: only its own script and style, and requests to its own server.
 *
 * @module
 */

import { CHAT_HTML } from "./chat_html.ts";

/** What a server sends for the chat page. */
export interface ChatPage {
  /** The page. */
  readonly html: string;
  /** The headers it needs. */
  readonly headers: Readonly<Record<string, string>>;
}

/** The page with its headers. The policy names the page's script and style by their hashes. */
export async function makeChatPage(): Promise<ChatPage> {
  const [script, style] = await Promise.all([hashOf("script"), hashOf("style")]);
  const policy = [
    "default-src 'self'",
    `script-src '${script}'`,
    `style-src '${style}'`,
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ];
  return {
    html: CHAT_HTML,
    headers: {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": policy.join("; "),
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
    },
  };
}

/** The hash of what stands in an element of the page, as a policy writes it. */
async function hashOf(element: "script" | "style"): Promise<string> {
  const [, text] = new RegExp(`<${element}>([\\s\\S]*)</${element}>`).exec(CHAT_HTML)!;
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return `sha256-${btoa(String.fromCharCode(...new Uint8Array(digest)))}`;
}
