/**
 * Settings that `/set` shows and changes: how tokens are chosen, under the names of the flags.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { nearest } from "../../graph/nearest.ts";
import { type Flag, readNumber } from "../flags.ts";
import { MODEL_FLAGS } from "../model_flags.ts";
import { table } from "../table.ts";
import type { ChatSettings } from "./conversation.ts";
import { CommandError } from "./error.ts";

/** The options that the flags set. */
const SETTINGS = {
  "temp": "temp",
  "top-p": "topP",
  "top-k": "topK",
  "min-p": "minP",
  "repetition-penalty": "repetitionPenalty",
  "presence-penalty": "presencePenalty",
  "frequency-penalty": "frequencyPenalty",
  "max-tokens": "maxTokens",
  "stop": "stop",
  "seed": "seed",
} as const satisfies Partial<Record<keyof typeof MODEL_FLAGS, keyof ChatSettings>>;

/** A setting by the name of its flag. */
export type SettingName = keyof typeof SETTINGS;

/** The names, in the order of the list. */
export const SETTING_NAMES = Object.keys(SETTINGS) as readonly SettingName[];

/** Resets a setting to its first value. */
const DEFAULT = "default";

/** The setting that a word names; undefined if it names none. */
export function settingOf(word: string): SettingName | undefined {
  return SETTING_NAMES.find((name) => {
    const { aliases = [] }: Flag = MODEL_FLAGS[name];
    return name === word || aliases.includes(word);
  });
}

/** Settings of which one is another. Throws a {@link CommandError}, or a UsageError for a number out of range. */
export function withSetting(settings: ChatSettings, defaults: ChatSettings, word: string, text: string): ChatSettings {
  const name = checkName(word);
  const key = SETTINGS[name];
  if (text === DEFAULT) return { ...settings, [key]: defaults[key] };
  return { ...settings, [key]: key === "stop" ? [text] : readNumber(`/set ${name}`, MODEL_FLAGS[name], text) };
}

/** Lines of the settings, or of one. Throws a {@link CommandError}. */
export function describeSettings(settings: ChatSettings, word: string): string {
  const names = word === "" ? SETTING_NAMES : [checkName(word)];
  return table(names.map((name) => [name, describeValue(settings[SETTINGS[name]])]));
}

function describeValue(value: ChatSettings[keyof ChatSettings]): string {
  const list = [value ?? []].flat();
  return list.length === 0 || value === Number.MAX_SAFE_INTEGER ? DEFAULT : list.map(quoted).join(" ");
}

function checkName(word: string): SettingName {
  const name = settingOf(word);
  if (name !== undefined) return name;
  const near = nearest(word, SETTING_NAMES);
  const expected = near === undefined ? `, expected ${SETTING_NAMES.join(", ")}` : `: did you mean ${near}?`;
  throw new CommandError(`/set has no ${quoted(word)}${expected}`);
}
