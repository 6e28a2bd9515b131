import { type ReactNode, Suspense, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { loadAllTexts } from "@/i18n";
import { FloatingTooltip } from "@/ui/controls/FloatingTooltip";
import { TooltipImplementation } from "@/ui/controls/Tooltip";
import { ErrorBoundary } from "./ErrorBoundary";
import { BottomBar } from "./navigation/BottomBar";
import { useGlobalShortcuts } from "./navigation/keyboard-shortcuts";
import { lazyComponent } from "./navigation/lazy-component";
import { Sidebar } from "./navigation/Sidebar";
import styles from "./Shell.module.css";
import { ApprovalAlerts } from "./status/ApprovalAlerts";
import { OfflineBanner } from "./status/OfflineBanner";

// It names pages; their texts are loaded later.
const CommandPalette = lazyComponent(async () => {
  const [{ CommandPalette: loaded }] = await Promise.all([import("./navigation/CommandPalette"), loadAllTexts()]);
  return { default: loaded };
});
const ShortcutsDialog = lazyComponent(async () => ({
  default: (await import("./navigation/ShortcutsDialog")).ShortcutsDialog,
}));

/** Frame around every page. */
export function Shell({ children }: { children: ReactNode }) {
  const { t } = useTranslation();
  const [location] = useLocation();
  const main = useRef<HTMLElement>(null);
  const [opened, setOpened] = useState<"palette" | "shortcuts" | null>(null);
  const section = location.split("/")[1] ?? "";
  useGlobalShortcuts(setOpened);
  // Once opened they stay mounted, so that closing them restores the focus.
  const [everOpened, setEverOpened] = useState(false);
  if (opened && !everOpened) setEverOpened(true);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new page starts at the top.
  useEffect(() => {
    main.current?.scrollTo(0, 0);
  }, [section]);

  return (
    <TooltipImplementation value={FloatingTooltip}>
      <div className={styles.shell}>
        <a className={styles.skip} href="#main">
          {t("shell.skip")}
        </a>
        <Sidebar onSearch={() => setOpened("palette")} onShortcuts={() => setOpened("shortcuts")} />
        <div className={styles.centre}>
          <ApprovalAlerts />
          <OfflineBanner />
          <main id="main" ref={main} tabIndex={-1} className={styles.main}>
            <ErrorBoundary location={location}>{children}</ErrorBoundary>
          </main>
        </div>
        <BottomBar onSearch={() => setOpened("palette")} />
        {everOpened && (
          <Suspense fallback={null}>
            <CommandPalette
              open={opened === "palette"}
              onClose={() => setOpened(null)}
              onShortcuts={() => setOpened("shortcuts")}
            />
            <ShortcutsDialog open={opened === "shortcuts"} onClose={() => setOpened(null)} />
          </Suspense>
        )}
      </div>
    </TooltipImplementation>
  );
}
