import { type ReactNode, Suspense, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { FloatingTooltip } from "@/ui/FloatingTooltip";
import { TooltipLook } from "@/ui/Tooltip";
import { Attention } from "./Attention";
import { Away } from "./Away";
import { BottomBar } from "./BottomBar";
import { ErrorBoundary } from "./ErrorBoundary";
import { part } from "./parts";
import { Rail } from "./Rail";
import styles from "./Shell.module.css";
import { useShortcuts } from "./shortcuts";

const Palette = part(async () => ({ default: (await import("./Palette")).Palette }));
const Shortcuts = part(async () => ({ default: (await import("./Shortcuts")).Shortcuts }));

/** What is around every page. */
export function Shell({ children }: { children: ReactNode }) {
  const { t } = useTranslation();
  const [location] = useLocation();
  const main = useRef<HTMLElement>(null);
  const [opened, setOpened] = useState<"palette" | "shortcuts" | null>(null);
  const room = location.split("/")[1] ?? "";
  useShortcuts(setOpened);
  // Once opened they stay, so that closing them gives the keyboard back to whoever had it.
  const [ever, setEver] = useState(false);
  if (opened && !ever) setEver(true);

  // biome-ignore lint/correctness/useExhaustiveDependencies: another room begins at its top.
  useEffect(() => {
    main.current?.scrollTo(0, 0);
  }, [room]);

  return (
    <TooltipLook value={FloatingTooltip}>
      <div className={styles.shell}>
        <a className={styles.skip} href="#main">
          {t("shell.skip")}
        </a>
        <Rail onSearch={() => setOpened("palette")} onShortcuts={() => setOpened("shortcuts")} />
        <div className={styles.centre}>
          <Attention />
          <Away />
          <main id="main" ref={main} tabIndex={-1} className={styles.main}>
            <ErrorBoundary place={location}>{children}</ErrorBoundary>
          </main>
        </div>
        <BottomBar onSearch={() => setOpened("palette")} />
        {ever && (
          <Suspense fallback={null}>
            <Palette
              open={opened === "palette"}
              onClose={() => setOpened(null)}
              onShortcuts={() => setOpened("shortcuts")}
            />
            <Shortcuts open={opened === "shortcuts"} onClose={() => setOpened(null)} />
          </Suspense>
        )}
      </div>
    </TooltipLook>
  );
}
