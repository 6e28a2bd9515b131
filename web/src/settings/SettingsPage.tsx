import { type ComponentType, useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { Link, useParams } from "wouter";
import NotFound from "@/shell/navigation/NotFound";
import { SETTINGS_TOPICS, type SettingsTopic } from "@/shell/navigation/settings-topics";
import { Page } from "@/ui/layout/Page";
import { AboutSettings } from "./About";
import { ApiKeySettings } from "./ApiKeys";
import { AppearanceSettings } from "./Appearance";
import { ModelSettings } from "./Models";
import { PolicySettings } from "./Policies";
import styles from "./SettingsPage.module.css";

const CONTENTS: Record<SettingsTopic["id"], ComponentType> = {
  models: ModelSettings,
  keys: ApiKeySettings,
  policies: PolicySettings,
  appearance: AppearanceSettings,
  about: AboutSettings,
};

/** Settings, one page per topic. */
export default function SettingsPage() {
  const { t } = useTranslation();
  const { page = "models" } = useParams<{ page: string }>();
  const found = SETTINGS_TOPICS.find(({ id }) => id === page);
  const pages = useRef<HTMLElement>(null);
  // On narrow screens the row of pages is wider than the screen.
  // biome-ignore lint/correctness/useExhaustiveDependencies: scroll when another page is chosen.
  useEffect(() => {
    pages.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [page]);
  if (!found) return <NotFound />;
  const Content = CONTENTS[found.id];
  return (
    <Page title={t("settings.title")}>
      <div className={styles.frame}>
        <nav ref={pages} className={styles.pages} aria-label={t("settings.pages")}>
          {SETTINGS_TOPICS.map(({ id, icon: Icon }) => (
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
          <Content />
        </div>
      </div>
    </Page>
  );
}
