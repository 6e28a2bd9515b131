import { useQuery } from "@tanstack/react-query";
import { ArrowLeft, ListTree, Monitor, Stethoscope } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useLocation, useParams } from "wouter";
import { ApiError, api } from "@/api/client";
import { boxOf } from "@/computers/box";
import { Computers, type View } from "@/computers/Computers";
import { isView } from "@/computers/views";
import { may, useMe } from "@/shell/me";
import { useTitle } from "@/ui/Page";
import { Failed, Loading } from "@/ui/states";
import { Tabs } from "@/ui/Tabs";
import { pathOf, SANDBOXES } from "./actions";
import { Diagnostics } from "./Diagnostics";
import { Events } from "./Events";
import { type Sandbox, titleOf } from "./facts";
import styles from "./Sandboxes.module.css";
import { SandboxHead } from "./SandboxHead";

type Tab = "computer" | "events" | "diagnostics";

/** One sandbox: what it is, its computer, and what happened to it. */
export default function SandboxPage() {
  const { t } = useTranslation();
  const { id = "", view } = useParams<{ id: string; view?: string }>();
  const [, navigate] = useLocation();
  const me = useMe().data;
  const query = useQuery({
    queryKey: [SANDBOXES, "one", id],
    queryFn: ({ signal }) => api.get<Sandbox>(pathOf(id), { signal }),
    refetchInterval: (state) => (state.state.error instanceof ApiError ? false : 4_000),
  });
  const box = query.data;
  useTitle(box ? titleOf(box) : id);
  const gone = query.error instanceof ApiError && query.error.status === 404;
  const tab: Tab = view === "events" || view === "diagnostics" ? view : "computer";
  const go = (to: string) => navigate(`/sandboxes/${encodeURIComponent(id)}${to ? `/${to}` : ""}`, { replace: true });

  if (!box && !gone)
    return query.error ? <Failed error={query.error} retry={() => void query.refetch()} /> : <Loading />;
  return (
    <div className={styles.sheet}>
      {box ? (
        <SandboxHead box={box} gone={gone} writes={may(me, "sandboxes:write")} />
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
          value={!box && tab !== "events" ? "events" : tab}
          onChange={(next) => go(next === "computer" ? "" : next)}
          tabs={[
            ...(box
              ? [
                  { id: "computer" as const, label: t("sandboxes.computer"), icon: Monitor },
                  { id: "diagnostics" as const, label: t("sandboxes.diagnostics.title"), icon: Stethoscope },
                ]
              : []),
            { id: "events" as const, label: t("sandboxes.events.title"), icon: ListTree },
          ]}
        >
          {tab === "events" || !box ? (
            <Events id={id} gone={gone} />
          ) : tab === "diagnostics" ? (
            <Diagnostics id={id} />
          ) : (
            <Computers
              boxes={[boxOf(box)]}
              chosen={{ sandbox: id, view: isView(view) ? view : "desktop" }}
              onChoose={(_, next: View) => go(next)}
            />
          )}
        </Tabs>
      </div>
    </div>
  );
}
