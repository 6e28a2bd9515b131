import { Check, CircleHelp, PenLine, ShieldCheck, X } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Approval } from "@/api/types";
import { KeyCap } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { TextArea, TextInput } from "@/ui/controls/forms";
import { Menu, type MenuItem } from "@/ui/controls/Menu";
import { useChatContext } from "../chat-context";
import { ApprovalExpiryCountdown } from "./ApprovalExpiryCountdown";
import { type ApprovalChoice, buildApprovalDecision, useDecideApprovals } from "./approval-decisions";
import styles from "./approvals.module.css";
import { EditArgumentsForm } from "./EditArgumentsForm";
import { revealInvisibleInArguments } from "./invisible-characters";
import { useVisibleApprovals } from "./visible-approvals";

/** Actions for a pending approval. */
export function ApprovalActions({ approval }: { approval: Approval }) {
  const { t } = useTranslation();
  const chat = useChatContext();
  const { busy, decide } = useDecideApprovals();
  const frame = useRef<HTMLDivElement>(null);
  const mode = useVisibleApprovals((state) => (state.open?.id === approval.id ? state.open.mode : null));
  const byKeys = useVisibleApprovals((state) => state.current === approval.id);
  const { setOpen, setInView } = useVisibleApprovals.getState();
  const hidden = useMemo(() => revealInvisibleInArguments(approval.arguments), [approval.arguments]);
  const choose = (choice: ApprovalChoice) => void decide([buildApprovalDecision(approval, choice)]);
  const isAllowed = (action: Approval["actions"][number]) => chat.mayWrite && approval.actions.includes(action);

  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const observer = new IntersectionObserver(([entry]) => setInView(approval.id, entry?.isIntersecting ?? false));
    observer.observe(element);
    return () => {
      observer.disconnect();
      setInView(approval.id, false);
    };
  }, [approval.id, setInView]);

  if (!chat.mayWrite)
    return (
      <div ref={frame} className={styles.actions}>
        <p className={styles.soft}>{t("chat.mayNotDecide")}</p>
      </div>
    );
  const more: MenuItem[] = [];
  if (isAllowed("approve")) {
    more.push({
      label: t("chat.alwaysCall"),
      icon: ShieldCheck,
      onSelect: () => choose({ action: "approve", always: "call" }),
    });
    more.push({
      label: t("chat.alwaysTool"),
      icon: ShieldCheck,
      onSelect: () => choose({ action: "approve", always: "tool" }),
    });
  }
  if (isAllowed("answer"))
    more.push({ label: t("chat.answerInstead"), icon: CircleHelp, onSelect: () => setOpen(approval.id, "answer") });

  return (
    <div ref={frame} className={styles.actions} data-approval={approval.id}>
      {hidden.length > 0 && (
        <div className={styles.hidden} role="alert">
          <strong>{t("chat.hiddenLetters")}</strong>
          {hidden.map((text, index) => (
            <code key={index}>{text}</code>
          ))}
        </div>
      )}
      {approval.type === "question" ? (
        <QuestionChoices approval={approval} busy={busy} choose={choose} />
      ) : mode === "edit" ? (
        <EditArgumentsForm
          args={approval.arguments}
          busy={busy}
          onDone={(changed) => choose({ action: "edit", arguments: changed })}
          onCancel={() => setOpen(null)}
        />
      ) : mode === "reject" ? (
        <RejectionReason
          label={t("chat.rejectReason")}
          action={t("chat.reject")}
          tone="danger"
          busy={busy}
          onDone={(reason) => choose({ action: "reject", reason })}
        />
      ) : mode === "answer" ? (
        <RejectionReason
          label={t("chat.answerInsteadHint")}
          action={t("chat.sendAnswer")}
          tone="accent"
          required
          busy={busy}
          onDone={(answer) => choose({ action: "answer", answer })}
        />
      ) : (
        <div className={styles.row}>
          {isAllowed("approve") && (
            <Button size="small" tone="accent" icon={Check} busy={busy} onClick={() => choose({ action: "approve" })}>
              {t("chat.approve")}
              {byKeys && <KeyCap>A</KeyCap>}
            </Button>
          )}
          {isAllowed("edit") && (
            <Button size="small" icon={PenLine} disabled={busy} onClick={() => setOpen(approval.id, "edit")}>
              {t("chat.edit")}
            </Button>
          )}
          {isAllowed("reject") && (
            <Button size="small" icon={X} disabled={busy} onClick={() => setOpen(approval.id, "reject")}>
              {t("chat.reject")}
              {byKeys && <KeyCap>R</KeyCap>}
            </Button>
          )}
          {more.length > 0 && (
            <Menu
              trigger={
                <Button size="small" tone="quiet" disabled={busy}>
                  {t("chat.always")}
                </Button>
              }
              items={more}
            />
          )}
          {approval.expires_at && <ApprovalExpiryCountdown until={approval.expires_at} />}
        </div>
      )}
    </div>
  );
}

function QuestionChoices(props: { approval: Approval; busy: boolean; choose: (choice: ApprovalChoice) => void }) {
  const { approval, busy, choose } = props;
  const { t } = useTranslation();
  const [answer, setAnswer] = useState("");
  return (
    <>
      <p className={styles.question}>{approval.question}</p>
      {approval.choices.length > 0 && (
        <div className={styles.row}>
          {approval.choices.map((each) => (
            <Button key={each.id} disabled={busy} onClick={() => choose({ action: "answer", answer: each.label })}>
              {each.label}
            </Button>
          ))}
        </div>
      )}
      <form
        className={styles.row}
        onSubmit={(event) => {
          event.preventDefault();
          if (answer.trim()) choose({ action: "answer", answer: answer.trim() });
        }}
      >
        <TextInput
          className={styles.grow}
          aria-label={t("chat.yourAnswer")}
          placeholder={approval.choices.length ? t("chat.otherAnswer") : t("chat.yourAnswer")}
          value={answer}
          onChange={(event) => setAnswer(event.target.value)}
        />
        <Button type="submit" tone="accent" busy={busy} disabled={!answer.trim()}>
          {t("chat.sendAnswer")}
        </Button>
        {approval.actions.includes("reject") && (
          <Button tone="quiet" disabled={busy} onClick={() => choose({ action: "reject" })}>
            {t("chat.noAnswer")}
          </Button>
        )}
      </form>
    </>
  );
}

function RejectionReason(props: {
  label: string;
  action: string;
  tone: "accent" | "danger";
  required?: boolean;
  busy: boolean;
  onDone: (text: string) => void;
}) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const field = useRef<HTMLTextAreaElement | null>(null);
  useEffect(() => {
    field.current = document.querySelector<HTMLTextAreaElement>("textarea[data-reason]");
    field.current?.focus();
  }, []);
  const done = () => (!props.required || text.trim()) && props.onDone(text);
  return (
    <form
      className={styles.form}
      onSubmit={(event) => {
        event.preventDefault();
        done();
      }}
    >
      <TextArea
        data-reason
        rows={2}
        aria-label={props.label}
        placeholder={props.label}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") useVisibleApprovals.getState().setOpen(null);
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            done();
          }
        }}
      />
      <div className={styles.row}>
        <Button type="submit" tone={props.tone} busy={props.busy} disabled={props.required && !text.trim()}>
          {props.action}
        </Button>
        <Button tone="quiet" onClick={() => useVisibleApprovals.getState().setOpen(null)}>
          {t("common.cancel")}
        </Button>
      </div>
    </form>
  );
}

/** Outcome of a decided approval. */
export function ApprovalOutcome({ approval }: { approval: Approval }) {
  const { t } = useTranslation();
  const by = approval.decided_by;
  const outcomeText = t(`chat.decided.${approval.state}`, { defaultValue: approval.state });
  return (
    <p className={styles.soft}>
      {by ? t("chat.decidedBy", { said: outcomeText, by }) : outcomeText}
      {approval.always ? ` · ${t(`chat.always_${approval.always}`)}` : ""}
      {approval.reason ? `: ${approval.reason}` : ""}
    </p>
  );
}
