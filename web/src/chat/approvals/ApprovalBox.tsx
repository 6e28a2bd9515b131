import { Check, CircleHelp, PenLine, ShieldCheck, X } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Approval } from "@/api/types";
import { Key } from "@/ui/Badge";
import { Button } from "@/ui/Button";
import { TextArea, TextInput } from "@/ui/forms";
import { Menu, type MenuItem } from "@/ui/Menu";
import { useChat } from "../context";
import styles from "./approvals.module.css";
import { useAsking } from "./asking";
import { Countdown } from "./Countdown";
import { type Choice, decisionOf, useDecide } from "./deciding";
import { EditArguments } from "./EditArguments";
import { revealedIn } from "./hidden";

/** What a person can do about something that waits for them. */
export function ApprovalBox({ approval }: { approval: Approval }) {
  const { t } = useTranslation();
  const chat = useChat();
  const { busy, decide } = useDecide();
  const frame = useRef<HTMLDivElement>(null);
  const mode = useAsking((state) => (state.open?.id === approval.id ? state.open.mode : null));
  const byKeys = useAsking((state) => state.current === approval.id);
  const { setOpen, see } = useAsking.getState();
  const hidden = useMemo(() => revealedIn(approval.arguments), [approval.arguments]);
  const choose = (choice: Choice) => void decide([decisionOf(approval, choice)]);
  const may = (action: Approval["actions"][number]) => chat.mayWrite && approval.actions.includes(action);

  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const watcher = new IntersectionObserver(([entry]) => see(approval.id, entry?.isIntersecting ?? false));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      see(approval.id, false);
    };
  }, [approval.id, see]);

  if (!chat.mayWrite)
    return (
      <div ref={frame} className={styles.box}>
        <p className={styles.soft}>{t("chat.mayNotDecide")}</p>
      </div>
    );
  const more: MenuItem[] = [];
  if (may("approve")) {
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
  if (may("answer"))
    more.push({ label: t("chat.answerInstead"), icon: CircleHelp, onSelect: () => setOpen(approval.id, "answer") });

  return (
    <div ref={frame} className={styles.box} data-approval={approval.id}>
      {hidden.length > 0 && (
        <div className={styles.hidden} role="alert">
          <strong>{t("chat.hiddenLetters")}</strong>
          {hidden.map((text, index) => (
            <code key={index}>{text}</code>
          ))}
        </div>
      )}
      {approval.type === "question" ? (
        <Question approval={approval} busy={busy} choose={choose} />
      ) : mode === "edit" ? (
        <EditArguments
          given={approval.arguments}
          busy={busy}
          onDone={(changed) => choose({ action: "edit", arguments: changed })}
          onCancel={() => setOpen(null)}
        />
      ) : mode === "reject" ? (
        <Reason
          label={t("chat.rejectReason")}
          action={t("chat.reject")}
          tone="danger"
          busy={busy}
          onDone={(reason) => choose({ action: "reject", reason })}
        />
      ) : mode === "answer" ? (
        <Reason
          label={t("chat.answerInsteadHint")}
          action={t("chat.sendAnswer")}
          tone="accent"
          needed
          busy={busy}
          onDone={(answer) => choose({ action: "answer", answer })}
        />
      ) : (
        <div className={styles.row}>
          {may("approve") && (
            <Button size="small" tone="accent" icon={Check} busy={busy} onClick={() => choose({ action: "approve" })}>
              {t("chat.approve")}
              {byKeys && <Key>A</Key>}
            </Button>
          )}
          {may("edit") && (
            <Button size="small" icon={PenLine} disabled={busy} onClick={() => setOpen(approval.id, "edit")}>
              {t("chat.edit")}
            </Button>
          )}
          {may("reject") && (
            <Button size="small" icon={X} disabled={busy} onClick={() => setOpen(approval.id, "reject")}>
              {t("chat.reject")}
              {byKeys && <Key>R</Key>}
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
          {approval.expires_at && <Countdown until={approval.expires_at} />}
        </div>
      )}
    </div>
  );
}

function Question(props: { approval: Approval; busy: boolean; choose: (choice: Choice) => void }) {
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

function Reason(props: {
  label: string;
  action: string;
  tone: "accent" | "danger";
  needed?: boolean;
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
  const done = () => (!props.needed || text.trim()) && props.onDone(text);
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
          if (event.key === "Escape") useAsking.getState().setOpen(null);
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            done();
          }
        }}
      />
      <div className={styles.row}>
        <Button type="submit" tone={props.tone} busy={props.busy} disabled={props.needed && !text.trim()}>
          {props.action}
        </Button>
        <Button tone="quiet" onClick={() => useAsking.getState().setOpen(null)}>
          {t("common.cancel")}
        </Button>
      </div>
    </form>
  );
}

/** What became of something that had waited. */
export function Decided({ approval }: { approval: Approval }) {
  const { t } = useTranslation();
  const by = approval.decided_by;
  const said = t(`chat.decided.${approval.state}`, { defaultValue: approval.state });
  return (
    <p className={styles.soft}>
      {by ? t("chat.decidedBy", { said, by }) : said}
      {approval.always ? ` · ${t(`chat.always_${approval.always}`)}` : ""}
      {approval.reason ? `: ${approval.reason}` : ""}
    </p>
  );
}
