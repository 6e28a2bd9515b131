import { useTranslation } from "react-i18next";
import { stringify } from "yaml";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { RelativeTime } from "@/ui/format/formats";
import type { McpServer } from "./api";
import styles from "./mcp.module.css";
import { ServerOrigin } from "./ServerList";
import { HealthHistory } from "./ServerState";

/** Origin, history and declaration of a server, and its address for clients. */
export function ServerDetails({ server }: { server: McpServer }) {
  const { t } = useTranslation();
  const address = `${window.location.origin}/mcp/${server.name}`;
  return (
    <>
      <dl className={styles.facts}>
        <dt>{t("mcp.server.origin")}</dt>
        <dd>
          <ServerOrigin server={server} />
        </dd>
        {server.createdAt && (
          <>
            <dt>{t("mcp.server.added")}</dt>
            <dd>
              <RelativeTime at={server.createdAt} />
            </dd>
          </>
        )}
        <dt>{t("mcp.server.address")}</dt>
        <dd>
          <code className={styles.break}>{address}</code>
        </dd>
      </dl>
      {server.source === "file" && (
        <p className={styles.notice}>
          <TextWithCode text={t("mcp.server.readOnly")} />
        </p>
      )}
      <section className={styles.section} aria-labelledby="mcp-health">
        <h2 id="mcp-health">{t("mcp.health.title")}</h2>
        <HealthHistory server={server} />
      </section>
      <section className={styles.section} aria-labelledby="mcp-declaration">
        <h2 id="mcp-declaration">{t("mcp.server.declaration")}</h2>
        <CodeBlock text={stringify({ ...server.declaration })} label="YAML" fileName={`${server.name}.yaml`} wrap />
      </section>
    </>
  );
}
