import { Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { useParams } from "wouter";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { useUrlQuery } from "@/shell/navigation/useUrlQuery";
import { Button } from "@/ui/controls/Button";
import { Tabs } from "@/ui/controls/Tabs";
import { Page } from "@/ui/layout/Page";
import { McpCallList } from "./McpCallList";
import styles from "./mcp.module.css";
import { ServerDialog } from "./ServerDialog";
import { ServerList } from "./ServerList";
import { ServerPage } from "./ServerPage";
import { SetDialog } from "./SetDialog";
import { SetList } from "./SetList";

const TABS = ["servers", "sets", "calls"] as const;

/** Page of all servers or of one. */
export default function ToolsPage() {
  const { server } = useParams<{ server?: string }>();
  return server === undefined ? <ServersPage /> : <ServerPage key={server} name={decodeURIComponent(server)} />;
}

/** MCP servers, sets of their tools, and recent calls. */
function ServersPage() {
  const { t } = useTranslation();
  const { get, set } = useUrlQuery();
  const [search, setSearch] = useState("");
  const writes = hasScope(useCurrentUser().data, "mcp:write");
  const tab = TABS.find((each) => each === get("tab")) ?? "servers";
  return (
    <Page
      title={t("mcp.title")}
      about={t("mcp.about")}
      actions={
        writes &&
        tab !== "calls" && (
          <Button tone="accent" icon={Plus} onClick={() => set({ new: "1" })}>
            {t(tab === "sets" ? "mcp.sets.add" : "mcp.server.add")}
          </Button>
        )
      }
    >
      <Tabs
        label={t("mcp.title")}
        tabs={TABS.map((id) => ({ id, label: t(`mcp.tabs.${id}`) }))}
        value={tab}
        onChange={(id) => set({ tab: id === "servers" ? "" : id, new: "" })}
      >
        <div className={styles.stack}>
          {tab === "servers" && <ServerList search={search} onSearch={setSearch} writes={writes} />}
          {tab === "sets" && <SetList writes={writes} />}
          {tab === "calls" && <McpCallList />}
        </div>
      </Tabs>
      {get("new") && writes && tab === "servers" && <ServerDialog onClose={() => set({ new: "" })} />}
      {get("new") && writes && tab === "sets" && <SetDialog onClose={() => set({ new: "" })} />}
    </Page>
  );
}
