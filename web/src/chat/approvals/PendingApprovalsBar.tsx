import { ArrowDown, Check, CheckCheck } from "lucide-react";
import { Fragment, Suspense } from "react";
import { useTranslation } from "react-i18next";
import type { Approval } from "@/api/types";
import { lazyComponent } from "@/shell/navigation/lazy-component";
import { KeyCap } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { useCallTitle } from "../calls/CallCard";
import { argumentSummary } from "../calls/tool-labels";
import { useChat } from "../chat-context";
import { approvalTool, lineShowsWholeCall, useApprovalShortcuts } from "./approval-shortcuts";
import styles from "./approvals.module.css";
import { approvableApprovals, buildDecision, useDecideApprovals } from "./decisions";
import { revealInvisible } from "./invisible-characters";
import { useVisibleApprovals } from "./visible-approvals";

const CallSummaryLine = lazyComponent(async () => ({ default: (await import("./CallSummary")).CallSummaryLine }));

interface Props {
  waiting: readonly Approval[];
  /** Scroll an approval's card into view. */
  onShow: (approval: Approval) => void;
}

/** Summary lines that fit into the bar. */
const MAX_LINES = 4;

/** Lists approvals scrolled out of view, with a button to approve several at once. */
export function PendingApprovalsBar({ waiting, onShow }: Props) {
  const { t } = useTranslation();
  const chat = useChat();
  const titleOf = useCallTitle();
  const seen = useVisibleApprovals((state) => state.seen);
  const { busy, decide } = useDecideApprovals();
  const current = waiting[0];
  const many = approvableApprovals(waiting);
  useApprovalShortcuts(chat.mayWrite && !busy ? waiting : [], decide, onShow);
  if (!current || !chat.mayWrite) return null;
  const isSeen = seen.has(current.id);
  if (isSeen && many.length < 2) return null;
  const tool = approvalTool(current);
  const lineOf = (each: Approval) =>
    each.type === "question" ? each.question : argumentSummary(approvalTool(each), each.arguments);
  const summary = lineOf(current);
  const unseen = (many.length > 1 ? many : [current]).filter((each) => !seen.has(each.id));
  const whole = lineShowsWholeCall(summary, current);
  return (
    <section className={styles.bar} aria-label={t("chat.waitsForYou")} data-testid="sticky-approvals">
      <div className={styles.what}>
        <strong>
          {many.length > 1
            ? t("chat.severalWait", { count: many.length })
            : current.type === "question"
              ? t("chat.question")
              : titleOf({ name: current.name, kind: current.kind ?? null, tool })}
        </strong>
        {unseen.slice(0, MAX_LINES).map((each) => (
          <Fragment key={each.id}>
            {each.summary && (
              <Suspense>
                <CallSummaryLine summary={each.summary} />
              </Suspense>
            )}
            <code>{revealInvisible(lineOf(each)) ?? lineOf(each)}</code>
          </Fragment>
        ))}
        {unseen.length > MAX_LINES && <span>{t("chat.andMore", { count: unseen.length - MAX_LINES })}</span>}
      </div>
      {!isSeen && (
        <Button size="small" icon={ArrowDown} onClick={() => onShow(current)}>
          {t("chat.look")}
        </Button>
      )}
      {!isSeen && whole && current.type === "call" && many.length < 2 && (
        <Button
          size="small"
          tone="accent"
          icon={Check}
          busy={busy}
          onClick={() => void decide([buildDecision(current, { action: "approve" })])}
        >
          {t("chat.approve")}
          <KeyCap>A</KeyCap>
        </Button>
      )}
      {many.length > 1 && (
        <Button
          size="small"
          tone="accent"
          icon={CheckCheck}
          busy={busy}
          onClick={() => void decide(many.map((each) => buildDecision(each, { action: "approve" })))}
        >
          {t("chat.approveAll", { count: many.length })}
        </Button>
      )}
    </section>
  );
}
