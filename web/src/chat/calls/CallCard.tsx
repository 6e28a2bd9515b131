import { Ban, Check, ChevronRight, CircleAlert, Hand, LoaderCircle, MonitorPlay, PenLine, Wrench } from "lucide-react";
import { Suspense, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Approval } from "@/api/types";
import type { CallView } from "@/session/types";
import { lazyComponent } from "@/shell/navigation/lazy-component";
import { Button } from "@/ui/controls/Button";
import { formatDuration } from "@/ui/format/formats";
import { ApprovalActions, ApprovalOutcome } from "../approvals/ApprovalActions";
import { sandboxForCall, useChatContext } from "../chat-context";
import { candidateFilePath } from "../thread/path-candidates";
import { CallArguments } from "./CallArguments";
import { CallResultView } from "./CallResult";
import styles from "./calls.module.css";
import { LiveCallOutput } from "./LiveCallOutput";
import { identifyTool, summarizeArguments, toolIcon, toolPanelView } from "./tool-labels";

const ApprovalSummary = lazyComponent(() => import("../approvals/ApprovalSummary"));

/** Title of a call, such as "Run a command in linux". */
export function useCallTitle(): (call: Pick<CallView, "tool" | "name" | "kind">) => string {
  const { t } = useTranslation();
  const { kinds } = useChatContext();
  return (call) => {
    const { tool, kind, server } = identifyTool(call, kinds);
    // The server chose the tool's name, which must not look like a tool of a sandbox.
    if (server) return t("chat.toolOfServer", { tool, server });
    const toolTitle =
      t(`chat.tools.${tool}`, { defaultValue: "" }) || t("chat.useTool", { tool: tool.replaceAll("_", " ") });
    return kind ? t("chat.toolIn", { what: toolTitle, where: kind }) : toolTitle;
  };
}

/** Card of one tool call, folded to a line unless it needs attention. */
export function CallCard({ call, approval }: { call: CallView; approval: Approval | null }) {
  const { t } = useTranslation();
  const chat = useChatContext();
  const titleOf = useCallTitle();
  const isPending = approval?.state === "pending";
  const failed = Boolean(call.result?.failed && !call.result.refused);
  const [opened, setOpened] = useState<boolean | null>(null);
  const open = isPending || (opened ?? failed);
  const { tool, server } = identifyTool(call, chat.kinds);
  const Icon = server ? Wrench : toolIcon(tool);
  const title = titleOf(call);
  const sandbox = sandboxForCall(chat.sandboxes, call.sandbox, call.kind);
  // The text of a rejected call is for the model; people read the decision and its reason.
  const rejected = Boolean(call.result?.refused && (approval?.state === "rejected" || approval?.state === "expired"));
  const live = call.progress === "running" && call.output ? <LiveCallOutput text={call.output} /> : null;
  return (
    <article className={[styles.card, isPending && styles.pending].filter(Boolean).join(" ")} aria-label={title}>
      <button type="button" className={styles.head} aria-expanded={open} onClick={() => setOpened(!open)}>
        <Icon size={16} aria-hidden />
        <span className={styles.title}>{title}</span>
        <span className={styles.summary}>{summarizeArguments(tool, call.arguments)}</span>
        <CallStatus call={call} isPending={isPending} failed={failed} />
        <ChevronRight size={16} aria-hidden className={styles.chevron} data-open={open} />
      </button>
      {live && !open && <div className={styles.body}>{live}</div>}
      {open && (
        <div className={styles.body}>
          {isPending && approval?.summary && (
            <Suspense fallback={<p>{approval.summary.text}</p>}>
              <ApprovalSummary summary={approval.summary} />
            </Suspense>
          )}
          {approval?.type !== "question" && <CallArguments call={call} fold={isPending} />}
          {approval && !isPending && <ApprovalOutcome approval={approval} />}
          {isPending && <ApprovalActions approval={approval} />}
          {live}
          {call.result && !rejected && <CallResultView session={chat.session} result={call.result} />}
          {sandbox && sandbox.state !== "released" && (
            <div className={styles.foot}>
              <Button
                size="small"
                tone="quiet"
                icon={MonitorPlay}
                onClick={() =>
                  chat.show(
                    sandbox.id,
                    toolPanelView(tool),
                    toolPanelView(tool) === "files" ? callPath(call) : undefined,
                  )
                }
                aria-label={t("chat.showInSandbox", { kind: sandbox.kind })}
              >
                {t("chat.showInSandboxShort")}
              </Button>
            </div>
          )}
        </div>
      )}
    </article>
  );
}

/** File that the call is about. */
function callPath(call: CallView): string | undefined {
  const args = call.arguments ?? {};
  const path = [args.destination, args.to_path, args.path, args.file_path].find((each) => typeof each === "string");
  return (typeof path === "string" && candidateFilePath(path)) || undefined;
}

function CallStatus({ call, isPending, failed }: { call: CallView; isPending: boolean; failed: boolean }) {
  const { t } = useTranslation();
  const hiddenText = (text: string) => <span className="visually-hidden">{text}</span>;
  if (isPending)
    return (
      <span className={styles.status}>
        <Hand size={15} aria-hidden />
        <span className={styles.statusText}>{t("chat.status.asked")}</span>
      </span>
    );
  if (call.result) {
    const seconds = call.result.seconds > 0 ? formatDuration(call.result.seconds) : "";
    return (
      <span className={styles.status}>
        {seconds}
        {call.result.refused ? (
          <>
            <Ban size={15} aria-hidden />
            {t("chat.status.refused")}
          </>
        ) : failed ? (
          <>
            <CircleAlert size={15} aria-hidden className={styles.wrong} />
            {hiddenText(t("chat.status.failed"))}
          </>
        ) : (
          <>
            <Check size={15} aria-hidden className={styles.good} />
            {hiddenText(t("chat.status.done"))}
          </>
        )}
      </span>
    );
  }
  if (call.progress === "done") return <span className={styles.status}>{t("chat.status.withdrawn")}</span>;
  if (call.progress === "writing")
    return (
      <span className={styles.status}>
        <PenLine size={15} aria-hidden />
        {t("chat.status.writing")}
      </span>
    );
  return (
    <span className={styles.status}>
      {call.runningAt && (call.sandbox || !call.kind) && <ElapsedTime since={call.runningAt} />}
      <LoaderCircle size={15} aria-hidden className={styles.turning} />
      {hiddenText(t("chat.status.running"))}
    </span>
  );
}

function ElapsedTime({ since }: { since: string }) {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.floor((now - new Date(since).getTime()) / 1000);
  return seconds >= 2 ? <span>{formatDuration(seconds)}</span> : null;
}
