import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { useParams } from "wouter";
import { useSandboxAgent } from "@/sandboxes/useSandboxAgent";
import { usePageTitle } from "@/ui/layout/Page";
import { ErrorState, LoadingBars } from "@/ui/layout/query-states";
import styles from "./SandboxPanel.module.css";
import { SandboxViewPane } from "./SandboxViews";
import { sandboxViewFromResponse, useSandbox, useSandboxKinds } from "./sandbox-queries";
import { availableView, isSandboxViewName } from "./sandbox-views";

/** One view of one sandbox in its own window. */
export default function PopoutWindow() {
  const { t } = useTranslation();
  const { sandbox: id = "", view: requestedView } = useParams();
  const query = useSandbox(id);
  const kinds = useSandboxKinds().data;
  const sandbox = query.data && sandboxViewFromResponse(query.data);
  const { agent, pending } = useSandboxAgent(query.data);
  const screen = kinds?.find((each) => each.name === sandbox?.kind)?.screen;
  const view = availableView(
    isSandboxViewName(requestedView) ? requestedView : "desktop",
    sandbox?.kind ?? "linux",
    screen,
  );
  const name = query.data?.metadata.name || sandbox?.kind || id;
  usePageTitle(`${t(`sandboxPanel.views.${view}`)} · ${name}`);
  useEffect(() => {
    // Windows opened by the console have a name; a window moved to a tab has none.
    if (!window.name) window.name = `paddock-${id}-${view}`;
  }, [id, view]);
  return (
    <main className={styles.popout}>
      <h1 className="visually-hidden">
        {t(`sandboxPanel.views.${view}`)} <bdi>{name}</bdi>
      </h1>
      {sandbox && !pending ? (
        <SandboxViewPane sandbox={sandbox} view={view} active standalone agent={agent} />
      ) : query.error ? (
        <ErrorState error={query.error} retry={() => void query.refetch()} />
      ) : (
        <LoadingBars />
      )}
    </main>
  );
}
