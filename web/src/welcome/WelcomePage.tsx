import type { TFunction } from "i18next";
import { Cable, ListChecks, MessageCirclePlus, Play, RotateCcw, SquarePlus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { ConnectModel } from "@/shell/models/ConnectModel";
import { refusedKeyOfModel } from "@/shell/models/refused-key";
import { type ServerFacts, useServerFacts } from "@/shell/status/server-facts";
import { useOpenDemoChat } from "@/shell/status/useOpenDemoChat";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { usePageTitle } from "@/ui/layout/Page";
import { RecentActivity, useRecentChats } from "./RecentActivity";
import styles from "./WelcomePage.module.css";

/** Start page: a demo, next steps and recent activity. */
export default function WelcomePage() {
  const { t } = useTranslation();
  const me = useCurrentUser().data;
  const server = useServerFacts();
  const [connecting, setConnecting] = useState(false);
  const chats = hasScope(me, "sessions:write");
  const tasks = hasScope(me, "runs:write");
  usePageTitle(t("welcome.title"));
  return (
    <div className={styles.page}>
      <header className={styles.hero}>
        <h1>{t("welcome.title")}</h1>
        <p>{t("welcome.about")}</p>
        {chats && server.data?.models.demo && <DemoButton builds={buildsDemoImage(server.data)} />}
        {chats && server.data && !server.data.models.demo && (
          <Link href="/chats" className={styles.main}>
            <MessageCirclePlus size={18} aria-hidden />
            {t("welcome.begin")}
          </Link>
        )}
      </header>
      <section aria-labelledby="next" className={styles.section}>
        <h2 id="next">{t("welcome.next")}</h2>
        <div className={styles.cards}>
          {chats && (
            <Link href="/chats" className={styles.card}>
              <MessageCirclePlus size={22} aria-hidden />
              <h3>{t("welcome.chat.title")}</h3>
              <p>{t("welcome.chat.about")}</p>
            </Link>
          )}
          {tasks && (
            <Link href="/tasks" className={styles.card}>
              <ListChecks size={22} aria-hidden />
              <h3>{t("welcome.task.title")}</h3>
              <p>{t("welcome.task.about")}</p>
            </Link>
          )}
          {hasScope(me, "sandboxes:write") && !chats && !tasks && (
            <Link href="/sandboxes?create=1" className={styles.card}>
              <SquarePlus size={22} aria-hidden />
              <h3>{t("welcome.sandbox.title")}</h3>
              <p>{t("welcome.sandbox.about")}</p>
            </Link>
          )}
          <button type="button" className={styles.card} onClick={() => setConnecting(true)}>
            <Cable size={22} aria-hidden />
            <h3>
              {t("welcome.model.title")}
              {server.data?.models.real && <ModelState state={server.data.models.state} />}
            </h3>
            <p>{modelCardText(t, server.data?.models)}</p>
          </button>
        </div>
      </section>
      <RecentActivity />
      <Dialog open={connecting} onClose={() => setConnecting(false)} title={t("welcome.model.title")}>
        <ConnectModel />
      </Dialog>
    </div>
  );
}

/** What the card about models says: how to connect one, which one answers, or which key was refused. */
function modelCardText(t: TFunction, models: ServerFacts["models"] | undefined): string {
  if (!models?.real) return t("welcome.model.about");
  const refused = models.state === "key_refused" ? refusedKeyOfModel(models, models.default ?? "") : null;
  if (refused) return t("shell.provider.keyRefusedBy", { ...refused });
  if (models.state !== "ready" || !models.default) return t("welcome.model.connectedAboutNone");
  return t("welcome.model.connectedAbout", { model: models.default });
}

/** Whether models are ready to answer. */
function ModelState({ state }: { state: ServerFacts["models"]["state"] }) {
  const { t } = useTranslation();
  if (state === "key_refused") return <Badge tone="danger">{t("shell.provider.keyRefused")}</Badge>;
  if (state === "not_reached") return <Badge tone="warning">{t("shell.provider.unreached")}</Badge>;
  return <Badge tone="good">{t("welcome.model.done")}</Badge>;
}

/** Button that starts a scripted demo chat. */
/** Kinds of sandbox that the demo can use. */
const DEMO_KINDS = new Set(["linux", "code"]);

/** Whether the demo begins with the build of its image. */
function buildsDemoImage({ kinds }: ServerFacts): boolean {
  return !kinds.some(({ name, built }) => DEMO_KINDS.has(name) && built);
}

function DemoButton({ builds }: { builds: boolean }) {
  const { t } = useTranslation();
  const hasChats = (useRecentChats().data?.items.length ?? 0) > 0;
  const openDemo = useOpenDemoChat();
  return (
    <div className={styles.demo}>
      <div className={styles.buttons}>
        <Button tone="accent" icon={Play} busy={openDemo.isPending} onClick={() => openDemo.mutate(false)}>
          {t("welcome.demo.begin")}
        </Button>
        {hasChats && (
          <Button tone="quiet" icon={RotateCcw} disabled={openDemo.isPending} onClick={() => openDemo.mutate(true)}>
            {t("welcome.demo.again")}
          </Button>
        )}
      </div>
      <p className={styles.honest}>
        {t("welcome.demo.honest")}
        {builds && ` ${t("welcome.demo.builds")}`}
      </p>
    </div>
  );
}
