import { CircleAlert, CircleStop, GitFork, Play, Shrink, SlidersHorizontal } from "lucide-react";
import { memo } from "react";
import { useTranslation } from "react-i18next";
import type { CompactedItem, ErrorItem, TurnView } from "@/session/types";
import { Button, IconButton } from "@/ui/Button";
import { CopyButton } from "@/ui/Code";
import { describeCode } from "@/ui/describe";
import { money } from "@/ui/money";
import { amount, duration } from "@/ui/Time";
import { useChat } from "../context";
import styles from "./thread.module.css";

/** What a turn took, and what can be done from there. */
export const TurnFoot = memo(function TurnFoot({ turn, last, text }: { turn: TurnView; last: string; text: string }) {
  const { t, i18n } = useTranslation();
  const chat = useChat();
  const used = (name: "input_tokens" | "output_tokens") => turn.usageAfter[name] - turn.usageBefore[name];
  const cost = (turn.usageAfter.cost ?? 0) - (turn.usageBefore.cost ?? 0);
  const seconds = turn.endedAt ? (Date.parse(turn.endedAt) - Date.parse(turn.startedAt)) / 1000 : 0;
  const parts = [
    used("input_tokens") + used("output_tokens") > 0 &&
      t("chat.turnTokens", {
        input: amount(used("input_tokens"), i18n.language),
        output: amount(used("output_tokens"), i18n.language),
      }),
    cost > 0 && money(cost, i18n.language),
    seconds > 0 && duration(seconds),
  ].filter(Boolean);
  return (
    <footer className={styles.foot}>
      {turn.state === "cancelled" && (
        <span className={styles.ended}>
          <CircleStop size={14} aria-hidden />
          {t("chat.stopped")}
        </span>
      )}
      <span>{parts.join(" · ")}</span>
      <span className={styles.footActions}>
        {text && <CopyButton text={text} label={t("chat.copyAnswer")} />}
        {chat.mayWrite && (
          <IconButton size="small" icon={GitFork} label={t("chat.forkHere")} onClick={() => chat.fork(last)} />
        )}
      </span>
    </footer>
  );
});

/** What went wrong, and what to do next. */
export function Trouble({ item, goOn }: { item: ErrorItem; goOn: boolean }) {
  const { t } = useTranslation();
  const chat = useChat();
  const noModel = item.code === "MODEL_NOT_FOUND";
  const named = { model: (noModel && /'([^']+)'/.exec(item.text)?.[1]) || "" };
  return (
    <div className={item.fatal ? styles.trouble : styles.warning} role={item.fatal ? "alert" : undefined}>
      <CircleAlert size={16} aria-hidden />
      <div>
        <p className={styles.troubleText}>{describeCode(item.code, item.text, named)}</p>
        <p className={styles.soft}>
          {t(noModel ? "chat.nextModel" : item.fatal ? "chat.nextFatal" : "chat.nextGoesOn")}
        </p>
        {goOn && noModel && chat.mayWrite && (
          <Button size="small" icon={SlidersHorizontal} onClick={chat.openSettings}>
            {t("chat.otherModel")}
          </Button>
        )}
        {goOn && chat.mayWrite && (
          <Button size="small" icon={Play} onClick={chat.goOn}>
            {t("chat.continue")}
          </Button>
        )}
      </div>
    </div>
  );
}

export function Compacted({ item }: { item: CompactedItem }) {
  const { t, i18n } = useTranslation();
  return (
    <p className={styles.note}>
      <Shrink size={14} aria-hidden />
      <span>
        {t("chat.compacted", {
          count: item.messages,
          before: amount(item.before, i18n.language),
          after: amount(item.after, i18n.language),
        })}
      </span>
    </p>
  );
}
