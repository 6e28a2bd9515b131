import { type ReactNode, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { Away } from "./Away";
import { BottomBar } from "./BottomBar";
import { ErrorBoundary } from "./ErrorBoundary";
import { Palette } from "./Palette";
import { Rail } from "./Rail";
import styles from "./Shell.module.css";
import { Shortcuts } from "./Shortcuts";
import { useShortcuts } from "./shortcuts";

/** What is around every page. */
export function Shell({ children }: { children: ReactNode }) {
  const { t } = useTranslation();
  const [location] = useLocation();
  const main = useRef<HTMLElement>(null);
  const [opened, setOpened] = useState<"palette" | "shortcuts" | null>(null);
  const room = location.split("/")[1] ?? "";
  useShortcuts(setOpened);

  // biome-ignore lint/correctness/useExhaustiveDependencies: another room begins at its top.
  useEffect(() => {
    main.current?.scrollTo(0, 0);
  }, [room]);

  return (
    <div className={styles.shell}>
      <a className={styles.skip} href="#main">
        {t("shell.skip")}
      </a>
      <Rail onSearch={() => setOpened("palette")} onShortcuts={() => setOpened("shortcuts")} />
      <div className={styles.centre}>
        <Away />
        <main id="main" ref={main} tabIndex={-1} className={styles.main}>
          <ErrorBoundary place={location}>{children}</ErrorBoundary>
        </main>
      </div>
      <BottomBar onSearch={() => setOpened("palette")} />
      <Palette open={opened === "palette"} onClose={() => setOpened(null)} onShortcuts={() => setOpened("shortcuts")} />
      <Shortcuts open={opened === "shortcuts"} onClose={() => setOpened(null)} />
    </div>
  );
}
