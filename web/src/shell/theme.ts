/** How the console looks in this browser: light, dark or as the system has it, and how close things stand. */

import { create } from "zustand";
import { recall, remember } from "@/ui/remember";

export type Theme = "system" | "light" | "dark";
export type Density = "roomy" | "compact";
export const THEMES: Theme[] = ["system", "light", "dark"];
export const DENSITIES: Density[] = ["roomy", "compact"];
const dark = window.matchMedia("(prefers-color-scheme: dark)");

export const useAppearance = create<{ theme: Theme; density: Density }>(() => ({
  theme: recall<Theme>("theme", "system"),
  density: recall<Density>("density", "roomy"),
}));

function show(): void {
  const { theme, density } = useAppearance.getState();
  const page = document.documentElement.dataset;
  page.theme = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
  page.density = density;
}

export function startTheme(): void {
  dark.addEventListener("change", show);
  useAppearance.subscribe(show);
  show();
}

export function chooseTheme(theme: Theme): void {
  remember("theme", theme);
  useAppearance.setState({ theme });
}

export function chooseDensity(density: Density): void {
  remember("density", density);
  useAppearance.setState({ density });
}
