import { Cpu, Info, KeyRound, type LucideIcon, Palette, ShieldCheck } from "lucide-react";
import { type ComponentType, useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { Link, useParams } from "wouter";
import NotFound from "@/shell/NotFound";
import { Page } from "@/ui/Page";
import { About } from "./About";
import { Appearance } from "./Appearance";
import { Keys } from "./Keys";
import { Models } from "./Models";
import { Policies } from "./Policies";
import styles from "./Settings.module.css";

const PAGES: Record<string, { icon: LucideIcon; show: ComponentType }> = {
  models: { icon: Cpu, show: Models },
  keys: { icon: KeyRound, show: Keys },
  policies: { icon: ShieldCheck, show: Policies },
  appearance: { icon: Palette, show: Appearance },
  about: { icon: Info, show: About },
};

/** Settings, a page for each sort. */
export default function Settings() {
  const { t } = useTranslation();
  const { page = "models" } = useParams<{ page: string }>();
  const found = Object.hasOwn(PAGES, page) ? PAGES[page] : undefined;
  const pages = useRef<HTMLElement>(null);
  // On a narrow screen they stand in a row that is longer than the screen.
  // biome-ignore lint/correctness/useExhaustiveDependencies: whenever another one is chosen.
  useEffect(() => {
    pages.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [page]);
  if (!found) return <NotFound />;
  const { show: Show } = found;
  return (
    <Page title={t("settings.title")}>
      <div className={styles.frame}>
        <nav ref={pages} className={styles.pages} aria-label={t("settings.pages")}>
          {Object.entries(PAGES).map(([id, { icon: Icon }]) => (
            <Link
              key={id}
              href={`/settings/${id}`}
              className={styles.link}
              aria-current={id === page ? "page" : undefined}
            >
              <Icon size={16} aria-hidden />
              {t(`settings.${id}.title`)}
            </Link>
          ))}
        </nav>
        <div className={styles.content}>
          <Show />
        </div>
      </div>
    </Page>
  );
}
