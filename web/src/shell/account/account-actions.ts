/** Theme and account actions for menus and the command palette. */

import { Check, Keyboard, Languages, LogOut, type LucideIcon, Monitor, Moon, Sun } from "lucide-react";
import { useTranslation } from "react-i18next";
import { chooseLanguage, LANGUAGES, type Language } from "@/i18n";
import { showErrorToast } from "@/ui/controls/toasts";
import { chooseTheme, THEMES, type Theme, useAppearance } from "./appearance";
import { signOut } from "./sign-in";

export interface AccountAction {
  label: string;
  icon: LucideIcon;
  onSelect: () => void;
}

const THEME_ICONS: Record<Theme, LucideIcon> = { system: Monitor, light: Sun, dark: Moon };

export function useAccountActions(onShortcuts?: () => void): AccountAction[] {
  const { t, i18n } = useTranslation();
  const theme = useAppearance((state) => state.theme);
  const actions: AccountAction[] = THEMES.map((each) => ({
    label: t(`shell.theme.${each}`),
    icon: each === theme ? Check : THEME_ICONS[each],
    onSelect: () => chooseTheme(each),
  }));
  for (const [language, name] of Object.entries(LANGUAGES)) {
    actions.push({
      label: name,
      icon: language === i18n.language ? Check : Languages,
      onSelect: () => void chooseLanguage(language as Language).catch(showErrorToast),
    });
  }
  if (onShortcuts) actions.push({ label: t("shell.shortcuts.title"), icon: Keyboard, onSelect: onShortcuts });
  actions.push({ label: t("shell.signOut"), icon: LogOut, onSelect: () => void signOut().catch(showErrorToast) });
  return actions;
}
