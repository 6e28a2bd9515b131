/** What can be done about how the console looks and who is signed in, for menus and the palette. */

import { Check, Keyboard, Languages, LogOut, type LucideIcon, Monitor, Moon, Sun } from "lucide-react";
import { useTranslation } from "react-i18next";
import { choose, LANGUAGES, type Language } from "@/i18n";
import { toastError } from "@/ui/toasts";
import { signOut } from "./signing";
import { chooseTheme, THEMES, type Theme, useAppearance } from "./theme";

export interface Deed {
  label: string;
  icon: LucideIcon;
  onSelect: () => void;
}

const LOOKS: Record<Theme, LucideIcon> = { system: Monitor, light: Sun, dark: Moon };

export function useDeeds(onShortcuts?: () => void): Deed[] {
  const { t, i18n } = useTranslation();
  const theme = useAppearance((state) => state.theme);
  const deeds: Deed[] = THEMES.map((each) => ({
    label: t(`shell.theme.${each}`),
    icon: each === theme ? Check : LOOKS[each],
    onSelect: () => chooseTheme(each),
  }));
  for (const [language, name] of Object.entries(LANGUAGES)) {
    deeds.push({
      label: name,
      icon: language === i18n.language ? Check : Languages,
      onSelect: () => void choose(language as Language).catch(toastError),
    });
  }
  if (onShortcuts) deeds.push({ label: t("shell.shortcuts.title"), icon: Keyboard, onSelect: onShortcuts });
  deeds.push({ label: t("shell.signOut"), icon: LogOut, onSelect: () => void signOut().catch(toastError) });
  return deeds;
}
