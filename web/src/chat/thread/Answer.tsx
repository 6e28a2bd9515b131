import { ChevronRight, Scissors } from "lucide-react";
import { memo, Suspense, useDeferredValue, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Approval } from "@/api/types";
import type { AnswerItem, CallView } from "@/session/types";
import { part } from "@/shell/parts";
import { Markdown } from "@/ui/Markdown";
import { CallCard } from "../calls/CallCard";
import { candidate } from "./paths";
import styles from "./thread.module.css";

const FileCode = part(() => import("./Workspace"));
const WorkspacePicture = part(async () => ({ default: (await import("./Workspace")).WorkspacePicture }));

function Code({ text }: { text: string }) {
  if (candidate(text) === null) return <code>{text}</code>;
  return (
    <Suspense fallback={<code>{text}</code>}>
      <FileCode text={text} />
    </Suspense>
  );
}

function Image(props: { source: string; alt: string }) {
  return (
    <Suspense>
      <WorkspacePicture {...props} />
    </Suspense>
  );
}

interface Props {
  item: AnswerItem;
  calls: Readonly<Record<string, CallView>>;
  approvals: Readonly<Record<string, Approval>>;
}

/** One answer of the agent: what it thought, what it says, what it does. */
export const Answer = memo(function Answer({ item, calls, approvals }: Props) {
  const { t } = useTranslation();
  // Words may come quicker than they can be set: those on the screen then lag a little, and typing does not.
  const text = useDeferredValue(item.text);
  return (
    <article className={styles.answer} aria-label={item.by ?? t("chat.agent")} aria-busy={!item.whole}>
      {item.by && <span className={styles.who}>{item.by}</span>}
      {(item.thought || item.thinking) && <Thought item={item} />}
      {text && <Markdown text={text} code={Code} image={Image} />}
      {item.calls.map((id) => {
        const call = calls[id];
        // The plan has a place of its own, above the composer.
        if (!call || (call.tool === "update_plan" && !call.result?.failed)) return null;
        return <CallCard key={id} call={call} approval={(call.approval && approvals[call.approval]) || null} />;
      })}
      {item.cut && (
        <p className={styles.cut}>
          <Scissors size={14} aria-hidden />
          {t("chat.cut", { reason: t(`chat.cuts.${item.cut}`, { defaultValue: item.cut }) })}
        </p>
      )}
    </article>
  );
});

/** What the agent thought, folded; how long it took is known to who was there. */
function Thought({ item }: { item: AnswerItem }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const began = useRef(item.thinking ? performance.now() : 0);
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    if (!began.current) return;
    const count = () => setSeconds(Math.round((performance.now() - began.current) / 1000));
    count();
    if (!item.thinking) return;
    const timer = setInterval(count, 1000);
    return () => clearInterval(timer);
  }, [item.thinking]);
  const label = item.thinking ? t("chat.thinks") : seconds > 0 ? t("chat.thoughtFor", { seconds }) : t("chat.thought");
  return (
    <div className={styles.thought}>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <ChevronRight size={14} aria-hidden className={styles.chevron} data-open={open} />
        <span className={item.thinking ? styles.shimmer : undefined}>{label}</span>
      </button>
      {open && <div className={styles.thoughtText}>{item.thought}</div>}
    </div>
  );
}
