import { CircleAlert, Clock, LoaderCircle } from "lucide-react";
import { memo } from "react";
import { useTranslation } from "react-i18next";
import type { FileContent } from "@/api/types";
import type { Outgoing } from "@/session/store";
import type { SaidItem } from "@/session/types";
import { useMe } from "@/shell/me";
import { Button } from "@/ui/Button";
import { describe } from "@/ui/describe";
import { Time } from "@/ui/Time";
import { useChat } from "../context";
import { Files } from "./Files";
import { handedBack } from "./handed";
import { LocalFiles } from "./LocalFiles";
import styles from "./thread.module.css";

/** What a person wrote, or a quiet line of the server's. */
export const Said = memo(function Said({ item }: { item: SaidItem }) {
  const { t } = useTranslation();
  const { session, several } = useChat();
  const { message } = item;
  const texts = message.content.flatMap((part) => (part.type === "text" ? [part.text] : []));
  const text = texts.join("\n\n");
  const files = message.content.filter((part): part is FileContent => part.type !== "text");
  const me = useMe().data?.name;
  if (message.role === "note")
    return (
      <p className={styles.note}>
        <span>{texts.map((part) => handedBack(part, me) ?? part).join(" ")}</span>
      </p>
    );
  return (
    <article className={styles.said} aria-label={t("chat.saidBy", { name: message.by ?? t("chat.you") })}>
      {several && message.by && <span className={styles.who}>{message.by}</span>}
      <div className={styles.bubble}>
        <Files session={session} files={files} />
        {text && <p className={styles.words}>{text}</p>}
      </div>
      <span className={styles.under}>
        {item.waits && (
          <>
            <Clock size={13} aria-hidden />
            {t("chat.waits")} ·{" "}
          </>
        )}
        <Time at={item.at} />
      </span>
    </article>
  );
});

/** What is on its way to the server. */
export function OnItsWay({ outgoing }: { outgoing: Outgoing }) {
  const { t } = useTranslation();
  const { retry, discard } = useChat();
  const failed = outgoing.state === "failed";
  const reason = outgoing.error ? describe(outgoing.error) : "";
  return (
    <article className={styles.said} aria-label={t("chat.saidBy", { name: t("chat.you") })}>
      <div className={[styles.bubble, failed ? styles.unsent : styles.sending].join(" ")}>
        <LocalFiles files={outgoing.files} />
        {outgoing.text && <p className={styles.words}>{outgoing.text}</p>}
      </div>
      {failed ? (
        <span className={styles.under} role="alert">
          <CircleAlert size={14} aria-hidden className={styles.wrong} />
          {t("chat.notSent", { reason })}
          <Button size="small" onClick={() => retry(outgoing.key)}>
            {t("common.retry")}
          </Button>
          <Button size="small" tone="quiet" onClick={() => discard(outgoing.key)}>
            {t("chat.discard")}
          </Button>
        </span>
      ) : (
        <span className={styles.under}>
          <LoaderCircle size={13} aria-hidden className={styles.turning} />
          {t("chat.sending")}
        </span>
      )}
    </article>
  );
}
