import { CircleAlert, CircleStop, GitFork, Play, Shrink, SlidersHorizontal } from "lucide-react";
import { memo } from "react";
import { useTranslation } from "react-i18next";
import type { CompactedItem, ErrorItem, TurnView } from "@/session/types";
import { CopyButton } from "@/ui/content/CodeBlock";
import { Button, IconButton } from "@/ui/controls/Button";
import { errorCodeText } from "@/ui/format/error-text";
import { formatAmount, formatDuration } from "@/ui/format/formats";
import { keyRefusalText } from "@/ui/format/key-refusal";
import { formatMoney } from "@/ui/format/money";
import { ServerDetails } from "@/ui/layout/query-states";
import { useChatContext } from "../chat-context";
import styles from "./thread.module.css";

/** Usage of a turn, and actions such as copy and fork. */
export const TurnFooter = memo(function TurnFooter({
  turn,
  last,
  text,
}: {
  turn: TurnView;
  last: string;
  text: string;
}) {
  const { t, i18n } = useTranslation();
  const chat = useChatContext();
  const tokensUsed = (name: "input_tokens" | "output_tokens") => turn.usageAfter[name] - turn.usageBefore[name];
  const cost = (turn.usageAfter.cost ?? 0) - (turn.usageBefore.cost ?? 0);
  const seconds = turn.endedAt ? (Date.parse(turn.endedAt) - Date.parse(turn.startedAt)) / 1000 : 0;
  const parts = [
    tokensUsed("input_tokens") + tokensUsed("output_tokens") > 0 &&
      t("chat.turnTokens", {
        input: formatAmount(tokensUsed("input_tokens"), i18n.language),
        output: formatAmount(tokensUsed("output_tokens"), i18n.language),
      }),
    cost > 0 && formatMoney(cost, i18n.language),
    seconds > 0 && formatDuration(seconds),
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

/** Error of a turn, with the next steps. */
export function TurnErrorNotice({ item, canContinue }: { item: ErrorItem; canContinue: boolean }) {
  const { t } = useTranslation();
  const chat = useChatContext();
  const noModel = item.code === "MODEL_NOT_FOUND";
  const refusal = keyRefusalText(item.text);
  const params = { model: (noModel && /'([^']+)'/.exec(item.text)?.[1]) || "" };
  return (
    <div className={item.fatal ? styles.trouble : styles.warning} role={item.fatal ? "alert" : undefined}>
      <CircleAlert size={16} aria-hidden />
      <div>
        <p className={styles.troubleText}>{refusal ?? errorCodeText(item.code, item.text, params)}</p>
        {refusal ? (
          <ServerDetails text={item.text} />
        ) : (
          <p className={styles.soft}>
            {t(noModel ? "chat.nextModel" : item.fatal ? "chat.nextFatal" : "chat.nextGoesOn")}
          </p>
        )}
        {canContinue && noModel && chat.mayWrite && (
          <Button size="small" icon={SlidersHorizontal} onClick={chat.openSettings}>
            {t("chat.otherModel")}
          </Button>
        )}
        {canContinue && chat.mayWrite && (
          <Button size="small" icon={Play} onClick={chat.continueTurn}>
            {t("chat.continue")}
          </Button>
        )}
      </div>
    </div>
  );
}

export function CompactionNotice({ item }: { item: CompactedItem }) {
  const { t, i18n } = useTranslation();
  return (
    <p className={styles.note}>
      <Shrink size={14} aria-hidden />
      <span>
        {t("chat.compacted", {
          count: item.messages,
          before: formatAmount(item.before, i18n.language),
          after: formatAmount(item.after, i18n.language),
        })}
      </span>
    </p>
  );
}
