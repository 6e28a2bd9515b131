import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Pencil, Plug, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { useUrlQuery } from "@/shell/navigation/useUrlQuery";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, Select } from "@/ui/controls/forms";
import { Tabs } from "@/ui/controls/Tabs";
import { showErrorToast, showToast } from "@/ui/controls/toasts";
import { formatDuration } from "@/ui/format/formats";
import { translateServerText } from "@/ui/format/server-text";
import { Page } from "@/ui/layout/Page";
import { QueryResult } from "@/ui/layout/query-states";
import { MCP_SERVERS_QUERY, type McpServer, serverPath, useMcpServer, useRunningSandboxes } from "./api";
import { HeldToolList } from "./HeldToolList";
import { McpCallList } from "./McpCallList";
import styles from "./mcp.module.css";
import { ServerDetails } from "./ServerDetails";
import { ServerDialog } from "./ServerDialog";
import { ServerState } from "./ServerState";
import { SignIn } from "./SignIn";
import { ToolList } from "./ToolList";

const TABS = ["tools", "changes", "calls", "details"] as const;

/** One MCP server: its tools, held changes, calls and declaration. */
export function ServerPage({ name }: { name: string }) {
  const { t } = useTranslation();
  const { get } = useUrlQuery();
  const query = useMcpServer(name, get("sandbox"));
  return (
    <Page
      title={name}
      about={<Link href="/tools">{t("mcp.title")}</Link>}
      actions={query.data && <ServerActions server={query.data} sandbox={get("sandbox")} />}
    >
      <QueryResult query={query}>{(server) => <ServerContent server={server} />}</QueryResult>
    </Page>
  );
}

function ServerContent({ server }: { server: McpServer }) {
  const { t } = useTranslation();
  const { get, set } = useUrlQuery();
  const tab = TABS.find((each) => each === get("tab")) ?? "tools";
  const isLocal = server.kind === "local";
  return (
    <>
      <div className={styles.summary}>
        <ServerState server={server} />
        <Badge>{t(`mcp.kinds.${server.kind}`)}</Badge>
        {server.description && <bdi className={styles.soft}>{server.description}</bdi>}
      </div>
      <SignIn server={server} />
      {isLocal && tab === "tools" && <SandboxChoice value={get("sandbox")} onChange={(sandbox) => set({ sandbox })} />}
      <Tabs
        label={server.name}
        tabs={TABS.map((id) => ({
          id,
          label: t(`mcp.tabs.${id}`),
          badge: id === "changes" && server.held > 0 && <Badge tone="warning">{server.held}</Badge>,
        }))}
        value={tab}
        onChange={(id) => set({ tab: id === "tools" ? "" : id })}
      >
        <div className={styles.stack}>
          {tab === "tools" && <ToolList server={server} sandbox={get("sandbox")} />}
          {tab === "changes" && <HeldToolList server={server} />}
          {tab === "calls" && <McpCallList server={server.name} />}
          {tab === "details" && <ServerDetails server={server} />}
        </div>
      </Tabs>
    </>
  );
}

/** Chooses the sandbox in which the program of a local server runs. */
function SandboxChoice({ value, onChange }: { value: string; onChange: (sandbox: string) => void }) {
  const { t } = useTranslation();
  const sandboxes = useRunningSandboxes(hasScope(useCurrentUser().data, "sandboxes:read")).data?.items ?? [];
  const known = sandboxes.map((each) => ({
    value: each.id,
    label: [each.metadata.name, each.extensions?.["paddock.kind"], each.id].filter(Boolean).join(" · "),
  }));
  const unlisted = value && !known.some((each) => each.value === value) ? [{ value, label: value }] : [];
  return (
    <div className={styles.choice}>
      <Field label={t("mcp.server.sandbox")} hint={t("mcp.server.sandboxHint")}>
        <Select
          value={value}
          onChange={onChange}
          options={[{ value: "", label: t("mcp.server.noSandbox") }, ...known, ...unlisted]}
        />
      </Field>
    </div>
  );
}

function ServerActions({ server, sandbox }: { server: McpServer; sandbox: string }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const [, navigate] = useLocation();
  const [dialog, setDialog] = useState<"edit" | "remove" | null>(null);
  const writes = hasScope(useCurrentUser().data, "mcp:write") && server.source === "tenant";
  const refresh = () => queries.invalidateQueries({ queryKey: ["mcp"] });
  const test = useMutation({
    mutationFn: () =>
      api.post<Schema<"McpTestResponse">>(`${serverPath(server.name)}/test`, {}, { query: { sandbox } }),
    onSuccess: (result) => {
      if (result.ok)
        showToast(
          t("mcp.test.works", {
            count: result.tools ?? 0,
            server: result.server ?? server.name,
            time: formatDuration(result.seconds),
          }),
          { tone: "good" },
        );
      else
        showToast(t("mcp.test.fails", { reason: translateServerText(result.error ?? "") }), {
          tone: "danger",
          seconds: 12,
        });
      return refresh();
    },
    onError: showErrorToast,
  });
  const removal = useMutation({
    mutationFn: () => api.delete(serverPath(server.name)),
    onSuccess: async () => {
      navigate("/tools");
      await queries.invalidateQueries({ queryKey: MCP_SERVERS_QUERY });
    },
    onError: showErrorToast,
  });
  return (
    <>
      <Button
        icon={Plug}
        busy={test.isPending}
        disabled={server.kind === "local" && !sandbox}
        onClick={() => test.mutate()}
      >
        {t("mcp.test.button")}
      </Button>
      {writes && (
        <>
          <Button icon={Pencil} onClick={() => setDialog("edit")}>
            {t("mcp.server.edit")}
          </Button>
          <Button icon={Trash2} onClick={() => setDialog("remove")}>
            {t("mcp.server.remove")}
          </Button>
        </>
      )}
      {dialog === "edit" && <ServerDialog server={server} onClose={() => setDialog(null)} />}
      <Dialog
        open={dialog === "remove"}
        onClose={() => setDialog(null)}
        title={t("mcp.server.removeTitle", { name: server.name })}
        footer={
          <>
            <Button onClick={() => setDialog(null)}>{t("common.cancel")}</Button>
            <Button tone="danger" busy={removal.isPending} onClick={() => removal.mutate()}>
              {t("mcp.server.remove")}
            </Button>
          </>
        }
      >
        <p>{t("mcp.server.removeAbout")}</p>
      </Dialog>
    </>
  );
}
