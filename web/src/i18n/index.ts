/** Texts of the console. English is always loaded; other languages on demand. */

import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import { loadServerMessages } from "@/ui/format/server-text";
import { readStoredValue, writeStoredValue } from "@/ui/hooks/browser-storage";

export const LANGUAGES = { en: "English", zh: "简体中文" } as const;
export type Language = keyof typeof LANGUAGES;

type Texts = Record<string, unknown>;
const english = import.meta.glob<Texts>(
  ["./en/*.json", "!./en/{archive,health,mcp,network,portPreview,runs,sandboxPanel,sandboxes,settings,usage}.json"],
  {
    eager: true,
    import: "default",
  },
);
/** Texts of pages that are loaded lazily. */
const laterEnglish = import.meta.glob<Texts>(
  "./en/{archive,health,mcp,network,portPreview,runs,sandboxPanel,sandboxes,settings,usage}.json",
  {
    import: "default",
  },
);
const chinese = import.meta.glob<Texts>("./zh/*.json", { import: "default" });

/** Each namespace has its own file, and its keys start with the namespace: `chat.send`. */
function joinNamespaces(files: Record<string, Texts>): Texts {
  return Object.fromEntries(Object.entries(files).map(([path, texts]) => [path.replace(/^.*\/|\.json$/g, ""), texts]));
}

async function loadNamespaces(files: Record<string, () => Promise<Texts>>): Promise<Texts> {
  return joinNamespaces(
    Object.fromEntries(await Promise.all(Object.entries(files).map(async ([path, get]) => [path, await get()]))),
  );
}

/** Load the English texts of all pages, including lazy ones. */
export async function loadAllTexts(): Promise<void> {
  i18next.addResourceBundle("en", "translation", await loadNamespaces(laterEnglish), true);
}

async function loadLanguage(language: Language): Promise<void> {
  if (language === "en" || i18next.hasResourceBundle(language, "translation")) return;
  const [texts] = await Promise.all([loadNamespaces(chinese), loadServerMessages()]);
  i18next.addResourceBundle(language, "translation", texts);
}

function preferredLanguage(): Language {
  const chosen = readStoredValue<Language | null>("language", null);
  if (chosen && chosen in LANGUAGES) return chosen;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export async function initLanguage(): Promise<void> {
  await i18next.use(initReactI18next).init({
    lng: "en",
    fallbackLng: "en",
    resources: { en: { translation: joinNamespaces(english) } },
    interpolation: { escapeValue: false },
    returnNull: false,
  });
  await applyLanguage(preferredLanguage());
}

/** Change the language of this browser. */
export async function chooseLanguage(language: Language): Promise<void> {
  writeStoredValue("language", language);
  await applyLanguage(language);
}

async function applyLanguage(language: Language): Promise<void> {
  await loadLanguage(language);
  await i18next.changeLanguage(language);
  document.documentElement.lang = language === "zh" ? "zh-CN" : language;
}
