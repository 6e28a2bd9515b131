import type { LucideIcon } from "lucide-react";
import { cloneElement, type ReactElement, Suspense, useState } from "react";
import { lazyComponent } from "@/shell/navigation/lazy-component";

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

const OpenMenu = lazyComponent<MenuProps>(() => import("./OpenMenu"));

/** Menu below `trigger`. Many exist and few are opened, so it is loaded on first use. */
export function Menu(props: MenuProps) {
  const [isRequested, setIsRequested] = useState(false);
  const closed = cloneElement(props.trigger, {
    "aria-haspopup": "menu",
    "aria-expanded": false,
    onClick: () => setIsRequested(true),
    onKeyDown: (event: React.KeyboardEvent) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      setIsRequested(true);
    },
  });
  if (!isRequested) return closed;
  return (
    <Suspense fallback={closed}>
      <OpenMenu {...props} />
    </Suspense>
  );
}
