import { useTranslation } from "react-i18next";
import { useServerFacts } from "@/shell/status/server-facts";
import { RelativeTime } from "@/ui/format/formats";
import { QueryResult } from "@/ui/layout/query-states";
import { Table } from "@/ui/layout/Table";
import { LICENCES } from "./licences";
import styles from "./SettingsPage.module.css";

export function AboutSettings() {
  const { t } = useTranslation();
  const server = useServerFacts();
  return (
    <>
      <section className={styles.section} aria-labelledby="about">
        <h2 id="about">{t("settings.about.title")}</h2>
        <QueryResult query={server} rows={3}>
          {(facts) => (
            <dl className={styles.facts}>
              <dt>{t("settings.about.version")}</dt>
              <dd>{facts.version}</dd>
              <dt>{t("settings.about.started")}</dt>
              <dd>
                <RelativeTime at={facts.startedAt} />
              </dd>
              <dt>{t("settings.about.licence")}</dt>
              <dd>Apache-2.0</dd>
              <dt>{t("settings.about.api")}</dt>
              <dd>
                <a href="/docs">/docs</a>
              </dd>
            </dl>
          )}
        </QueryResult>
      </section>
      <section className={styles.section} aria-labelledby="licences">
        <h2 id="licences">{t("settings.about.others")}</h2>
        <p className={styles.soft}>{t("settings.about.othersAbout")}</p>
        <div className={styles.narrow}>
          <Table
            label={t("settings.about.others")}
            rows={Object.entries(LICENCES)}
            keyOf={([name]) => name}
            columns={[
              { id: "name", label: t("settings.about.package"), cell: ([name]) => name },
              { id: "licence", label: t("settings.about.licence"), cell: ([, licence]) => licence },
            ]}
          />
        </div>
      </section>
    </>
  );
}
