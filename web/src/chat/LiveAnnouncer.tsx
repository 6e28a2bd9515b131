import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { AnswerItem, SessionView } from "@/session/types";

const MAX_LENGTH = 300;

/** Announces finished answers and waiting approvals to screen readers. */
export function LiveAnnouncer({ view, waiting }: { view: SessionView; waiting: number }) {
  const { t } = useTranslation();
  const answer = view.items.findLast(
    (item): item is AnswerItem => item.type === "answer" && item.isComplete && !!item.text,
  );
  const id = answer?.id ?? "";
  const text = answer?.text ?? "";
  const announcedId = useRef(id);
  const [announcement, setAnnouncement] = useState("");
  useEffect(() => {
    if (id === announcedId.current) return;
    announcedId.current = id;
    setAnnouncement(t("chat.answered", { text: text.slice(0, MAX_LENGTH) }));
  }, [id, text, t]);
  const before = useRef(waiting);
  useEffect(() => {
    if (waiting > before.current) setAnnouncement(t("chat.severalWait", { count: waiting }));
    before.current = waiting;
  }, [waiting, t]);
  return (
    <div className="visually-hidden" aria-live="polite">
      {announcement}
    </div>
  );
}
