import { ArrowDown, Check, CheckCheck } from "lucide-react";
import { Fragment, Suspense } from "react";
import { useTranslation } from "react-i18next";
import type { Approval } from "@/api/types";
import { lazyComponent } from "@/shell/navigation/lazy-component";
import { KeyCap } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { useCallTitle } from "../calls/CallCard";
import { summarizeArguments } from "../calls/tool-labels";
import { useChatContext } from "../chat-context";
import { approvableApprovals, buildApprovalDecision, useDecideApprovals } from "./approval-decisions";
import { approvalToolName, lineShowsWholeCall, useApprovalShortcuts } from "./approval-shortcuts";
import styles from "./approvals.module.css";
import { revealInvisibleCharacters } from "./invisible-characters";
import { useVisibleApprovals } from "./visible-approvals";

const ApprovalSummaryLine = lazyComponent(async () => ({
  default: (await import("./ApprovalSummary")).ApprovalSummaryLine,
}));

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
  const chat = useChatContext();
  const titleOf = useCallTitle();
  const inView = useVisibleApprovals((state) => state.inView);
  const { busy, decide } = useDecideApprovals();
  const current = waiting[0];
  const approvable = approvableApprovals(waiting);
  useApprovalShortcuts(chat.mayWrite && !busy ? waiting : [], decide, onShow);
  if (!current || !chat.mayWrite) return null;
  const isInView = inView.has(current.id);
  if (isInView && approvable.length < 2) return null;
  const tool = approvalToolName(current);
  const summaryLine = (each: Approval) =>
    each.type === "question" ? each.question : summarizeArguments(approvalToolName(each), each.arguments);
  const summary = summaryLine(current);
  const outOfView = (approvable.length > 1 ? approvable : [current]).filter((each) => !inView.has(each.id));
  const showsWholeCall = lineShowsWholeCall(summary, current);
  return (
    <section className={styles.bar} aria-label={t("chat.waitsForYou")} data-testid="sticky-approvals">
      <div className={styles.what}>
        <strong>
          {approvable.length > 1
            ? t("chat.severalWait", { count: approvable.length })
            : current.type === "question"
              ? t("chat.question")
              : titleOf({ name: current.name, kind: current.kind ?? null, tool })}
        </strong>
        {outOfView.slice(0, MAX_LINES).map((each) => (
          <Fragment key={each.id}>
            {each.summary && (
              <Suspense>
                <ApprovalSummaryLine summary={each.summary} />
              </Suspense>
            )}
            <code>{revealInvisibleCharacters(summaryLine(each)) ?? summaryLine(each)}</code>
          </Fragment>
        ))}
        {outOfView.length > MAX_LINES && <span>{t("chat.andMore", { count: outOfView.length - MAX_LINES })}</span>}
      </div>
      {!isInView && (
        <Button size="small" icon={ArrowDown} onClick={() => onShow(current)}>
          {t("chat.look")}
        </Button>
      )}
      {!isInView && showsWholeCall && current.type === "call" && approvable.length < 2 && (
        <Button
          size="small"
          tone="accent"
          icon={Check}
          busy={busy}
          onClick={() => void decide([buildApprovalDecision(current, { action: "approve" })])}
        >
          {t("chat.approve")}
          <KeyCap>A</KeyCap>
        </Button>
      )}
      {approvable.length > 1 && (
        <Button
          size="small"
          tone="accent"
          icon={CheckCheck}
          busy={busy}
          onClick={() => void decide(approvable.map((each) => buildApprovalDecision(each, { action: "approve" })))}
        >
          {t("chat.approveAll", { count: approvable.length })}
        </Button>
      )}
    </section>
  );
}
