import { useQuery } from "@tanstack/react-query";
import { ArrowLeft, EthernetPort, ListTree, Monitor, Stethoscope } from "lucide-react";
import { Suspense } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation, useParams } from "wouter";
import { ApiError, api } from "@/api/client";
import { SandboxPanel, type View } from "@/sandbox-panel/SandboxPanel";
import { sandboxViewFromResponse } from "@/sandbox-panel/sandbox-queries";
import { isSandboxViewName } from "@/sandbox-panel/sandbox-views";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { lazyComponent } from "@/shell/navigation/lazy-component";
import { Tabs } from "@/ui/controls/Tabs";
import { usePageTitle } from "@/ui/layout/Page";
import { ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { SANDBOXES_QUERY, sandboxApiPath } from "./actions";
import { SandboxDiagnostics } from "./SandboxDiagnostics";
import { SandboxEvents } from "./SandboxEvents";
import styles from "./SandboxesPage.module.css";
import { SandboxHeader } from "./SandboxHeader";
import { type Sandbox, sandboxTitle } from "./sandbox-properties";
import { useSandboxAgent } from "./useSandboxAgent";

const NetworkView = lazyComponent(async () => ({
  default: (await import("@/sandbox-panel/network/NetworkView")).NetworkView,
}));

/** While the sandbox exists, its network is one of the live views. */
type Tab = "live" | "events" | "diagnostics" | "network";

/** One sandbox: summary, panel and events. */
export default function SandboxPage() {
  const { t } = useTranslation();
  const { id = "", view } = useParams<{ id: string; view?: string }>();
  const [, navigate] = useLocation();
  const me = useCurrentUser().data;
  const query = useQuery({
    queryKey: [SANDBOXES_QUERY, "one", id],
    queryFn: ({ signal }) => api.get<Sandbox>(sandboxApiPath(id), { signal }),
    refetchInterval: (state) => (state.state.error instanceof ApiError ? false : 4_000),
  });
  const sandbox = query.data;
  const { agent, pending } = useSandboxAgent(sandbox);
  usePageTitle(sandbox ? sandboxTitle(sandbox) : id);
  const gone = query.error instanceof ApiError && query.error.status === 404;
  const liveTab: Tab = view === "events" || view === "diagnostics" ? view : "live";
  const tab: Tab = sandbox ? liveTab : view === "network" ? "network" : "events";
  const go = (to: string) => navigate(`/sandboxes/${encodeURIComponent(id)}${to ? `/${to}` : ""}`, { replace: true });

  if (!sandbox && !gone)
    return query.error ? <ErrorState error={query.error} retry={() => void query.refetch()} /> : <LoadingBars />;
  return (
    <div className={styles.sheet}>
      {sandbox ? (
        <SandboxHeader sandbox={sandbox} gone={gone} writes={hasScope(me, "sandboxes:write")} />
      ) : (
        <header className={styles.head}>
          <div>
            <div className={styles.titleRow}>
              <Link href="/sandboxes" aria-label={t("sandboxes.back")}>
                <ArrowLeft size={18} aria-hidden />
              </Link>
              <h1 className={styles.id}>{id}</h1>
            </div>
          </div>
        </header>
      )}
      <div className={styles.rest}>
        <Tabs<Tab>
          label={t("sandboxes.views")}
          value={tab}
          onChange={(next) => go(next === "live" ? "" : next)}
          tabs={[
            ...(sandbox
              ? [
                  { id: "live" as const, label: t("sandboxes.live"), icon: Monitor },
                  { id: "diagnostics" as const, label: t("sandboxes.diagnostics.title"), icon: Stethoscope },
                ]
              : []),
            { id: "events" as const, label: t("sandboxes.events.title"), icon: ListTree },
            ...(sandbox ? [] : [{ id: "network" as const, label: t("network.title"), icon: EthernetPort }]),
          ]}
        >
          {tab === "network" ? (
            <Suspense fallback={<LoadingBars />}>
              <NetworkView sandbox={id} active ended />
            </Suspense>
          ) : tab === "events" || !sandbox ? (
            <SandboxEvents id={id} gone={gone} />
          ) : tab === "diagnostics" ? (
            <SandboxDiagnostics id={id} />
          ) : pending ? (
            <LoadingBars />
          ) : (
            <SandboxPanel
              sandboxes={[sandboxViewFromResponse(sandbox)]}
              chosen={{ sandbox: id, view: isSandboxViewName(view) ? view : "desktop" }}
              onChoose={(_, next: View) => go(next)}
              agent={agent}
            />
          )}
        </Tabs>
      </div>
    </div>
  );
}
