/** The language of the page. A dictionary is fetched before anything is drawn; English needs none. */

export const LANGUAGES = { en: "English", de: "Deutsch", fr: "Français", es: "Español", zh: "中文", ja: "日本語" } as const;
export type Language = keyof typeof LANGUAGES;

const KEY = "pumice.language";
const isKnown = (code: string | null | undefined): code is Language => !!code && code in LANGUAGES;

/** The one that was chosen, or else the first of the browser's that the page has. */
export const language: Language = [localStorage.getItem(KEY), ...navigator.languages.map((each) => each.slice(0, 2))].find(isKnown) ?? "en";

let words: Record<string, string> = {};

/** Fetch the dictionary; without it the page is English. */
export async function loadWords(): Promise<void> {
  document.documentElement.lang = language;
  if (language === "en") return;
  try {
    words = await (await fetch(`page/${language}.json`)).json();
  } catch {
    document.documentElement.lang = "en";
  }
}

/** A text in the language of the page, with values in place of `{name}`. */
export function t(text: string, values: Record<string, string | number> = {}): string {
  return (words[text] ?? text).replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

/** Mark a text of a constant, which `t` translates where it is shown. */
export const key = (text: string): string => text;

/** Numbers as the language writes them. */
export const formatted = (n: number): string => n.toLocaleString(language);

/** A share of 1, at least 1 %. */
export const percent = (share: number): string => Math.max(share, 0.01).toLocaleString(language, { style: "percent" });

export function chooseLanguage(chosen: string): void {
  localStorage.setItem(KEY, chosen);
  location.reload();
}
