import { ArrowDown, Check, CheckCheck } from "lucide-react";
import { Fragment, Suspense } from "react";
import { useTranslation } from "react-i18next";
import type { Approval } from "@/api/types";
import { part } from "@/shell/parts";
import { Key } from "@/ui/Badge";
import { Button } from "@/ui/Button";
import { useCallTitle } from "../calls/CallCard";
import { summaryOf } from "../calls/words";
import { useChat } from "../context";
import styles from "./approvals.module.css";
import { useAsking } from "./asking";
import { approvable, decisionOf, useDecide } from "./deciding";
import { revealed } from "./hidden";
import { toolOfApproval, useApprovalKeys, wholeIn } from "./keys";

const SummaryLine = part(async () => ({ default: (await import("./CallSummary")).SummaryLine }));

interface Props {
  waiting: readonly Approval[];
  /** Bring an approval's card onto the screen. */
  onShow: (approval: Approval) => void;
}

/** So many lines of what waits fit into the bar. */
const MOST = 4;

/** What waits for a person, where its card cannot be seen; and a way to approve several at once. */
export function StickyBar({ waiting, onShow }: Props) {
  const { t } = useTranslation();
  const chat = useChat();
  const titleOf = useCallTitle();
  const seen = useAsking((state) => state.seen);
  const { busy, decide } = useDecide();
  const current = waiting[0];
  const many = approvable(waiting);
  useApprovalKeys(chat.mayWrite && !busy ? waiting : [], decide, onShow);
  if (!current || !chat.mayWrite) return null;
  const isSeen = seen.has(current.id);
  if (isSeen && many.length < 2) return null;
  const tool = toolOfApproval(current);
  const lineOf = (each: Approval) =>
    each.type === "question" ? each.question : summaryOf(toolOfApproval(each), each.arguments);
  const summary = lineOf(current);
  const unseen = (many.length > 1 ? many : [current]).filter((each) => !seen.has(each.id));
  const whole = wholeIn(summary, current);
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
        {unseen.slice(0, MOST).map((each) => (
          <Fragment key={each.id}>
            {each.summary && (
              <Suspense>
                <SummaryLine summary={each.summary} />
              </Suspense>
            )}
            <code>{revealed(lineOf(each)) ?? lineOf(each)}</code>
          </Fragment>
        ))}
        {unseen.length > MOST && <span>{t("chat.andMore", { count: unseen.length - MOST })}</span>}
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
          onClick={() => void decide([decisionOf(current, { action: "approve" })])}
        >
          {t("chat.approve")}
          <Key>A</Key>
        </Button>
      )}
      {many.length > 1 && (
        <Button
          size="small"
          tone="accent"
          icon={CheckCheck}
          busy={busy}
          onClick={() => void decide(many.map((each) => decisionOf(each, { action: "approve" })))}
        >
          {t("chat.approveAll", { count: many.length })}
        </Button>
      )}
    </section>
  );
}
