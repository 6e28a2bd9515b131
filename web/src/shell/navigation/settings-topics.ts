/** Pages of the settings, in their order. */

import { Cpu, Info, KeyRound, type LucideIcon, Palette, ShieldCheck } from "lucide-react";

export interface SettingsTopic {
  id: "models" | "keys" | "policies" | "appearance" | "about";
  icon: LucideIcon;
}

/** Pages of the settings, below `/settings/`. */
export const SETTINGS_TOPICS: SettingsTopic[] = [
  { id: "models", icon: Cpu },
  { id: "keys", icon: KeyRound },
  { id: "policies", icon: ShieldCheck },
  { id: "appearance", icon: Palette },
  { id: "about", icon: Info },
];
