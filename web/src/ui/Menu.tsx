import type { LucideIcon } from "lucide-react";
import { cloneElement, type ReactElement, Suspense, useState } from "react";
import { part } from "@/shell/parts";

export interface MenuItem {
  label: string;
  icon?: LucideIcon;
  onSelect: () => void;
  tone?: "danger";
  disabled?: boolean;
}

export interface MenuProps {
  /** A button. */
  trigger: ReactElement<Record<string, unknown>>;
  items: MenuItem[];
}

const OpenMenu = part<MenuProps>(() => import("./OpenMenu"));

/** A list of things to do that opens below `trigger`. There are many of them and few are opened, so it is made then. */
export function Menu(props: MenuProps) {
  const [asked, setAsked] = useState(false);
  const closed = cloneElement(props.trigger, {
    "aria-haspopup": "menu",
    "aria-expanded": false,
    onClick: () => setAsked(true),
    onKeyDown: (event: React.KeyboardEvent) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      setAsked(true);
    },
  });
  if (!asked) return closed;
  return (
    <Suspense fallback={closed}>
      <OpenMenu {...props} />
    </Suspense>
  );
}
