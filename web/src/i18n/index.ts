/** The words of the console. English is always there; other languages come when they are chosen. */

import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import { recall, remember } from "@/ui/remember";

export const LANGUAGES = { en: "English", zh: "简体中文" } as const;
export type Language = keyof typeof LANGUAGES;

type Words = Record<string, unknown>;
const english = import.meta.glob<Words>("./en/*.json", { eager: true, import: "default" });
const chinese = import.meta.glob<Words>("./zh/*.json", { import: "default" });

/** Each room has a file of its own, and its words begin with the room's name: `chat.send`. */
function joined(files: Record<string, Words>): Words {
  return Object.fromEntries(Object.entries(files).map(([path, words]) => [path.replace(/^.*\/|\.json$/g, ""), words]));
}

async function load(language: Language): Promise<void> {
  if (language === "en" || i18next.hasResourceBundle(language, "translation")) return;
  const loaded = await Promise.all(Object.entries(chinese).map(async ([path, get]) => [path, await get()] as const));
  i18next.addResourceBundle(language, "translation", joined(Object.fromEntries(loaded)));
}

function wanted(): Language {
  const chosen = recall<Language | null>("language", null);
  if (chosen && chosen in LANGUAGES) return chosen;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export async function startLanguage(): Promise<void> {
  await i18next.use(initReactI18next).init({
    lng: "en",
    fallbackLng: "en",
    resources: { en: { translation: joined(english) } },
    interpolation: { escapeValue: false },
    returnNull: false,
  });
  await speak(wanted());
}

/** Change the language, for this browser. */
export async function choose(language: Language): Promise<void> {
  remember("language", language);
  await speak(language);
}

async function speak(language: Language): Promise<void> {
  await load(language);
  await i18next.changeLanguage(language);
  document.documentElement.lang = language === "zh" ? "zh-CN" : language;
}
