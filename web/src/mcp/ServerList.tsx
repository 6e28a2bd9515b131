import { Unplug } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Badge } from "@/ui/controls/Badge";
import { SearchBox } from "@/ui/controls/forms";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { Table } from "@/ui/layout/Table";
import { type McpServer, useMcpServers, useMcpTools } from "./api";
import styles from "./mcp.module.css";
import { ServerState } from "./ServerState";

interface Props {
  search: string;
  onSearch: (text: string) => void;
  writes: boolean;
}

/** Servers that get a count of tools without an earlier connection. */
const MAX_COUNTED = 20;
const MAX_BEFORE_SEARCH = 8;

/** The servers that the key may see. */
export function ServerList({ search, onSearch, writes }: Props) {
  const { t } = useTranslation();
  const query = useMcpServers();
  return (
    <QueryResult query={query}>
      {({ items }) => {
        if (items.length === 0)
          return (
            <EmptyState icon={Unplug} title={t("mcp.server.none")}>
              <TextWithCode text={t(writes ? "mcp.server.noneAbout" : "mcp.server.noneAsk")} />
            </EmptyState>
          );
        const typed = search.trim().toLowerCase();
        const rows = items.filter((each) => `${each.name} ${each.description ?? ""}`.toLowerCase().includes(typed));
        return (
          <>
            {items.length > MAX_BEFORE_SEARCH && (
              <SearchBox label={t("mcp.server.search")} value={search} onChange={onSearch} />
            )}
            <Table<McpServer>
              label={t("mcp.tabs.servers")}
              rows={rows}
              keyOf={(each) => each.name}
              columns={[
                {
                  id: "name",
                  label: t("mcp.server.name"),
                  cell: (each) => (
                    <span className={styles.nameCell}>
                      <Link href={`/tools/${encodeURIComponent(each.name)}`} className={styles.name}>
                        {each.name}
                      </Link>
                      {each.description && <bdi className={styles.under}>{each.description}</bdi>}
                    </span>
                  ),
                },
                {
                  id: "kind",
                  label: t("mcp.server.kind"),
                  minor: true,
                  cell: (each) => t(`mcp.kinds.${each.kind}`),
                },
                {
                  id: "state",
                  label: t("mcp.server.state"),
                  cell: (each) => <ServerState server={each} />,
                },
                {
                  id: "tools",
                  label: t("mcp.server.tools"),
                  cell: (each) => (
                    <span className={styles.row}>
                      <ToolCount
                        server={each}
                        enabled={each.usable && (items.length <= MAX_COUNTED || each.state.status === "ready")}
                      />
                      {each.held > 0 && (
                        <Link href={`/tools/${encodeURIComponent(each.name)}?tab=changes`}>
                          <Badge tone="warning">{t("mcp.held.badge", { count: each.held })}</Badge>
                        </Link>
                      )}
                    </span>
                  ),
                },
                {
                  id: "origin",
                  label: t("mcp.server.origin"),
                  minor: true,
                  cell: (each) => <ServerOrigin server={each} />,
                },
              ]}
            />
          </>
        );
      }}
    </QueryResult>
  );
}

function ToolCount({ server, enabled }: { server: McpServer; enabled: boolean }) {
  const { t } = useTranslation();
  const tools = useMcpTools(server.name, "", enabled);
  if (tools.data) return <span>{tools.data.length}</span>;
  return <span title={t("mcp.server.toolsUnknown")}>–</span>;
}

export function ServerOrigin({ server }: { server: McpServer }) {
  const { t } = useTranslation();
  if (server.source === "file")
    return (
      <span>
        <TextWithCode text={t("mcp.server.ofFile")} />
      </span>
    );
  if (!server.createdBy)
    return <span>{t(server.source === "sandbox" ? "mcp.server.ofTask" : "mcp.server.ofApi")}</span>;
  return <bdi>{t("mcp.server.ofPerson", { name: server.createdBy })}</bdi>;
}
