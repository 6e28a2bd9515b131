import { useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { usePageTitlePrefix } from "@/ui/layout/Page";
import { useNotifications } from "./notifications";
import { useWaitingApprovals } from "./waiting-approvals";

/** Shows pending approvals in the page title and as browser notifications. */
export function ApprovalAlerts() {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const { count, path, newest } = useWaitingApprovals();
  const { on } = useNotifications();
  const lastKnown = useRef<string | null>(null);
  usePageTitlePrefix(count ? t("shell.approvalNeeded", { count }) : "");
  useEffect(() => {
    if (newest === null) return;
    // Approvals that were pending before the page opened are not announced.
    const isNew = lastKnown.current !== null && newest > lastKnown.current;
    if (lastKnown.current === null || isNew) lastKnown.current = newest;
    if (!isNew || !on || !document.hidden) return;
    const note = new Notification(t("shell.approvalNeeded", { count }), { tag: "paddock-approval", icon: "/icon.svg" });
    note.onclick = () => {
      window.focus();
      go(path);
      note.close();
    };
  }, [newest, count, path, on, t, go]);
  return null;
}
