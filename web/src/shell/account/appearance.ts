/** Theme and density of the console in this browser. */

import { create } from "zustand";
import { readStoredValue, writeStoredValue } from "@/ui/hooks/browser-storage";

export type Theme = "system" | "light" | "dark";
export type Density = "roomy" | "compact";
export const THEMES: Theme[] = ["system", "light", "dark"];
export const DENSITIES: Density[] = ["roomy", "compact"];
const darkQuery = window.matchMedia("(prefers-color-scheme: dark)");

export const useAppearance = create<{ theme: Theme; density: Density }>(() => ({
  theme: readStoredValue<Theme>("theme", "system"),
  density: readStoredValue<Density>("density", "roomy"),
}));

function applyAppearance(): void {
  const { theme, density } = useAppearance.getState();
  const page = document.documentElement.dataset;
  page.theme = theme === "system" ? (darkQuery.matches ? "dark" : "light") : theme;
  page.density = density;
}

export function startAppearance(): void {
  darkQuery.addEventListener("change", applyAppearance);
  useAppearance.subscribe(applyAppearance);
  applyAppearance();
}

export function chooseTheme(theme: Theme): void {
  writeStoredValue("theme", theme);
  useAppearance.setState({ theme });
}

export function chooseDensity(density: Density): void {
  writeStoredValue("density", density);
  useAppearance.setState({ density });
}
