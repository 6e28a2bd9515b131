/** Toast messages, and actions with undo. */

import { X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { create } from "zustand";
import { errorText } from "../format/error-text";
import styles from "../layout/layout.module.css";
import { Button, IconButton } from "./Button";

interface Toast {
  id: number;
  text: string;
  tone: "neutral" | "good" | "danger";
  action?: { label: string; run: () => void };
}

const useToasts = create<{ toasts: Toast[] }>(() => ({ toasts: [] }));
let toastCounter = 0;

function dismissToast(id: number): void {
  useToasts.setState(({ toasts }) => ({ toasts: toasts.filter((each) => each.id !== id) }));
}

/** Show a message for a few seconds. Returns a function that removes it. */
export function showToast(
  text: string,
  more: Partial<Omit<Toast, "id" | "text">> & { seconds?: number } = {},
): () => void {
  const { seconds = 6, tone = "neutral", action } = more;
  toastCounter += 1;
  const id = toastCounter;
  useToasts.setState(({ toasts }) => ({ toasts: [...toasts.slice(-3), { id, text, tone, action }] }));
  setTimeout(() => dismissToast(id), seconds * 1000);
  return () => dismissToast(id);
}

/** Show an error. */
export function showErrorToast(error: unknown): void {
  showToast(errorText(error), { tone: "danger", seconds: 10 });
}

/** Run an action after a few seconds unless the user clicks Undo. `hide` and `show` update the page meanwhile. */
export function runWithUndo(
  text: string,
  undo: string,
  run: () => Promise<unknown>,
  { hide, show }: { hide?: () => void; show?: () => void } = {},
): void {
  hide?.();
  let done = false;
  const runNow = () => {
    if (done) return;
    done = true;
    clearTimeout(timer);
    window.removeEventListener("pagehide", runNow);
    run().catch((error: unknown) => {
      show?.();
      showErrorToast(error);
    });
  };
  const timer = setTimeout(runNow, 5000);
  window.addEventListener("pagehide", runNow);
  const take = showToast(text, {
    seconds: 5,
    action: {
      label: undo,
      run: () => {
        if (done) return;
        done = true;
        clearTimeout(timer);
        window.removeEventListener("pagehide", runNow);
        show?.();
        take();
      },
    },
  });
}

export function Toasts() {
  const { t } = useTranslation();
  const toasts = useToasts((state) => state.toasts);
  return (
    <div className={styles.toasts} role="status" aria-live="polite">
      {toasts.map((each) => (
        <div key={each.id} className={`${styles.toast} ${styles[`toast-${each.tone}`] ?? ""}`}>
          <span>{each.text}</span>
          {each.action && (
            <Button size="small" onClick={each.action.run}>
              {each.action.label}
            </Button>
          )}
          <IconButton size="small" label={t("common.dismiss")} icon={X} onClick={() => dismissToast(each.id)} />
        </div>
      ))}
    </div>
  );
}
