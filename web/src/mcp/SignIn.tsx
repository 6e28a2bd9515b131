import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { LogIn, Unplug } from "lucide-react";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { showErrorToast } from "@/ui/controls/toasts";
import { translateServerText } from "@/ui/format/server-text";
import { type McpServer, serverPath } from "./api";
import styles from "./mcp.module.css";
import { isWebAddress } from "./server-form";

type SignInState = Schema<"McpSignInResponse">;
const POLL_MS = 2_000;

/** Sign-in at a server by OAuth: its state, and the buttons that begin and end it. */
export function SignIn({ server }: { server: McpServer }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const me = useCurrentUser().data;
  const [started, setStarted] = useState<Schema<"StartedMcpSignInResponse"> | null>(null);
  const path = `${serverPath(server.name)}/login`;
  const query = useQuery({
    queryKey: ["mcp", "login", server.name],
    queryFn: ({ signal }) => api.get<SignInState>(path, { signal }),
    enabled: server.usable && server.kind !== "local",
    refetchInterval: started ? POLL_MS : false,
    refetchIntervalInBackground: true,
  });
  const state = query.data;
  const isOver = started !== null && state?.last?.id === started.id && state.last.state !== "pending";
  useEffect(() => {
    if (!isOver) return;
    setStarted(null);
    void queries.invalidateQueries({ queryKey: ["mcp"] });
  }, [isOver, queries]);
  const start = useMutation({
    mutationFn: async (opened: Window | null) => {
      try {
        const begun = await api.post<Schema<"StartedMcpSignInResponse">>(path);
        // The address comes from the MCP server.
        if (!isWebAddress(begun.url)) throw new Error(t("mcp.signIn.badAddress"));
        if (opened) opened.location.href = begun.url;
        return begun;
      } catch (error) {
        opened?.close();
        throw error;
      }
    },
    onSuccess: setStarted,
    onError: showErrorToast,
  });
  const end = useMutation({
    mutationFn: () => api.delete(path),
    onError: showErrorToast,
    onSettled: () => queries.invalidateQueries({ queryKey: ["mcp"] }),
  });
  const begin = () => {
    // Opened at once: browsers block windows that open later than the click.
    const opened = window.open("about:blank", "_blank");
    if (opened) opened.opener = null;
    start.mutate(opened);
  };
  if (!state?.needed || state.per === "client") return null;
  const may = state.per === "user" || hasScope(me, "mcp:write");
  return (
    <div className={styles.summary}>
      <Badge tone={state.signedIn ? "good" : "warning"}>
        {t(state.signedIn ? "mcp.signIn.connected" : "mcp.signIn.notConnected")}
      </Badge>
      {state.account && <bdi className={styles.soft}>{state.account}</bdi>}
      {state.per === "tenant" && <span className={styles.soft}>{t("mcp.signIn.shared")}</span>}
      {may && (
        <Button size="small" icon={LogIn} busy={start.isPending} onClick={begin}>
          {t(state.signedIn ? "mcp.signIn.again" : "mcp.signIn.connect")}
        </Button>
      )}
      {may && state.signedIn && (
        <Button size="small" icon={Unplug} busy={end.isPending} onClick={() => end.mutate()}>
          {t("mcp.signIn.disconnect")}
        </Button>
      )}
      <span role="status" className={styles.soft}>
        {started ? (
          <>
            {t("mcp.signIn.waiting")}{" "}
            <a href={started.url} target="_blank" rel="noreferrer">
              {t("mcp.signIn.open")}
            </a>
          </>
        ) : (
          state.last?.state === "failed" &&
          state.last.error &&
          t("mcp.signIn.failed", { reason: translateServerText(state.last.error) })
        )}
      </span>
    </div>
  );
}
