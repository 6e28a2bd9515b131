/** Light, dark, or as the system has it. */

import { recall, remember } from "@/ui/remember";

export type Theme = "system" | "light" | "dark";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

export function theme(): Theme {
  return recall<Theme>("theme", "system");
}

function show(): void {
  const chosen = theme();
  document.documentElement.dataset.theme = chosen === "system" ? (dark.matches ? "dark" : "light") : chosen;
}

export function startTheme(): void {
  dark.addEventListener("change", show);
  show();
}

export function chooseTheme(chosen: Theme): void {
  remember("theme", chosen);
  show();
}
