/** Short messages at the bottom of the page, and things that can be undone before they are done. */

import { X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { create } from "zustand";
import { Button, IconButton } from "./Button";
import { describe } from "./describe";
import styles from "./pieces.module.css";

interface Toast {
  id: number;
  text: string;
  tone: "neutral" | "good" | "danger";
  action?: { label: string; run: () => void };
}

const useToasts = create<{ toasts: Toast[] }>(() => ({ toasts: [] }));
let counted = 0;

function dismiss(id: number): void {
  useToasts.setState(({ toasts }) => ({ toasts: toasts.filter((each) => each.id !== id) }));
}

/** Say something for a few seconds. Gives a function that takes it away. */
export function toast(text: string, more: Partial<Omit<Toast, "id" | "text">> & { seconds?: number } = {}): () => void {
  const { seconds = 6, tone = "neutral", action } = more;
  counted += 1;
  const id = counted;
  useToasts.setState(({ toasts }) => ({ toasts: [...toasts.slice(-3), { id, text, tone, action }] }));
  setTimeout(() => dismiss(id), seconds * 1000);
  return () => dismiss(id);
}

/** Say what went wrong. */
export function toastError(error: unknown): void {
  toast(describe(error), { tone: "danger", seconds: 10 });
}

/** Do something in a few seconds unless the person thinks better of it. `hide` and `show` change what is seen meanwhile. */
export function undoable(
  text: string,
  undo: string,
  run: () => Promise<unknown>,
  { hide, show }: { hide?: () => void; show?: () => void } = {},
): void {
  hide?.();
  let done = false;
  const begin = () => {
    if (done) return;
    done = true;
    clearTimeout(timer);
    window.removeEventListener("pagehide", begin);
    run().catch((error: unknown) => {
      show?.();
      toastError(error);
    });
  };
  const timer = setTimeout(begin, 5000);
  window.addEventListener("pagehide", begin);
  const take = toast(text, {
    seconds: 5,
    action: {
      label: undo,
      run: () => {
        if (done) return;
        done = true;
        clearTimeout(timer);
        window.removeEventListener("pagehide", begin);
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
          <IconButton size="small" label={t("common.dismiss")} icon={X} onClick={() => dismiss(each.id)} />
        </div>
      ))}
    </div>
  );
}
