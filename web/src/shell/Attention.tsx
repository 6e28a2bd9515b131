import { useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { useTitlePrefix } from "@/ui/Page";
import { useWaiting } from "./approvals";
import { useNotifications } from "./notifications";

/** Tells of approvals that wait where the page itself is not seen: in the browser's tab, and as a notification. */
export function Attention() {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const { count, path, newest } = useWaiting();
  const { on } = useNotifications();
  const known = useRef<string | null>(null);
  useTitlePrefix(count ? t("shell.approvalNeeded", { count }) : "");
  useEffect(() => {
    if (newest === null) return;
    // What waited before the page was opened is no news.
    const fresh = known.current !== null && newest > known.current;
    if (known.current === null || fresh) known.current = newest;
    if (!fresh || !on || !document.hidden) return;
    const note = new Notification(t("shell.approvalNeeded", { count }), { tag: "paddock-approval", icon: "/icon.svg" });
    note.onclick = () => {
      window.focus();
      go(path);
      note.close();
    };
  }, [newest, count, path, on, t, go]);
  return null;
}
