import { CircleAlert, Clock, LoaderCircle } from "lucide-react";
import { memo } from "react";
import { useTranslation } from "react-i18next";
import type { FileContent } from "@/api/types";
import type { OutgoingMessage } from "@/session/store";
import type { MessageItem } from "@/session/types";
import { useCurrentUser } from "@/shell/account/current-user";
import { Button } from "@/ui/controls/Button";
import { continueNoteText } from "@/ui/format/continue-note";
import { errorText } from "@/ui/format/error-text";
import { RelativeTime } from "@/ui/format/formats";
import { useChatContext } from "../chat-context";
import { LocalFiles } from "./LocalFiles";
import { MessageFiles } from "./MessageFiles";
import { describeTakeoverNote } from "./takeover-note";
import styles from "./thread.module.css";

/** A user's message, or a note of the server. */
export const UserMessage = memo(function UserMessage({ item }: { item: MessageItem }) {
  const { t } = useTranslation();
  const { session, several } = useChatContext();
  const { message } = item;
  const texts = message.content.flatMap((part) => (part.type === "text" ? [part.text] : []));
  const text = texts.join("\n\n");
  const files = message.content.filter((part): part is FileContent => part.type !== "text");
  const me = useCurrentUser().data?.name;
  if (message.role === "note")
    return (
      <p className={styles.note}>
        <span>{texts.map((part) => describeTakeoverNote(part, me) ?? continueNoteText(part) ?? part).join(" ")}</span>
      </p>
    );
  return (
    <article className={styles.userMessage} aria-label={t("chat.saidBy", { name: message.by ?? t("chat.you") })}>
      {several && message.by && <span className={styles.author}>{message.by}</span>}
      <div className={styles.bubble}>
        <MessageFiles session={session} files={files} />
        {text && <p className={styles.messageText}>{text}</p>}
      </div>
      <span className={styles.under}>
        {item.isWaiting && (
          <>
            <Clock size={13} aria-hidden />
            {t("chat.waits")} ·{" "}
          </>
        )}
        <RelativeTime at={item.at} />
      </span>
    </article>
  );
});

/** A message that is being sent. */
export function OutgoingUserMessage({ outgoing }: { outgoing: OutgoingMessage }) {
  const { t } = useTranslation();
  const { retry, discard } = useChatContext();
  const failed = outgoing.state === "failed";
  const reason = outgoing.error ? errorText(outgoing.error) : "";
  return (
    <article className={styles.userMessage} aria-label={t("chat.saidBy", { name: t("chat.you") })}>
      <div className={[styles.bubble, failed ? styles.unsent : styles.sending].join(" ")}>
        <LocalFiles files={outgoing.files} />
        {outgoing.text && <p className={styles.messageText}>{outgoing.text}</p>}
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
