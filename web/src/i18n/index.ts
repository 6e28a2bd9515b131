/** The words of the console. English is always there; other languages come when they are chosen. */

import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import { recall, remember } from "@/ui/remember";

export const LANGUAGES = { en: "English", zh: "简体中文" } as const;
export type Language = keyof typeof LANGUAGES;

type Words = Record<string, unknown>;
const english = import.meta.glob<Words>(["./en/*.json", "!./en/{archive,health,runs,settings,usage}.json"], {
  eager: true,
  import: "default",
});
/** Words of pages that are not the first ones. */
const laterEnglish = import.meta.glob<Words>("./en/{archive,health,runs,settings,usage}.json", { import: "default" });
const chinese = import.meta.glob<Words>("./zh/*.json", { import: "default" });

/** Each room has a file of its own, and its words begin with the room's name: `chat.send`. */
function joined(files: Record<string, Words>): Words {
  return Object.fromEntries(Object.entries(files).map(([path, words]) => [path.replace(/^.*\/|\.json$/g, ""), words]));
}

async function loaded(files: Record<string, () => Promise<Words>>): Promise<Words> {
  return joined(
    Object.fromEntries(await Promise.all(Object.entries(files).map(async ([path, get]) => [path, await get()]))),
  );
}

/** Load the English words of all pages, also of those that are opened later. */
export async function loadAllWords(): Promise<void> {
  i18next.addResourceBundle("en", "translation", await loaded(laterEnglish), true);
}

async function load(language: Language): Promise<void> {
  if (language === "en" || i18next.hasResourceBundle(language, "translation")) return;
  i18next.addResourceBundle(language, "translation", await loaded(chinese));
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
