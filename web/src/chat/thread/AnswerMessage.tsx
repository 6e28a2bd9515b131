import { ChevronRight, Scissors } from "lucide-react";
import { memo, Suspense, useDeferredValue, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Approval } from "@/api/types";
import type { AnswerItem, CallView } from "@/session/types";
import { lazyComponent } from "@/shell/navigation/lazy-component";
import { Markdown } from "@/ui/content/Markdown";
import { CallCard } from "../calls/CallCard";
import { candidateFilePath } from "./path-candidates";
import styles from "./thread.module.css";

const FilePathCode = lazyComponent(() => import("./WorkspaceLinks"));
const WorkspacePicture = lazyComponent(async () => ({ default: (await import("./WorkspaceLinks")).WorkspacePicture }));

function InlineFileCode({ text }: { text: string }) {
  if (candidateFilePath(text) === null) return <code>{text}</code>;
  return (
    <Suspense fallback={<code>{text}</code>}>
      <FilePathCode text={text} />
    </Suspense>
  );
}

function WorkspaceImage(props: { source: string; alt: string }) {
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

/** One answer of the agent: thought, text and calls. */
export const AnswerMessage = memo(function AnswerMessage({ item, calls, approvals }: Props) {
  const { t } = useTranslation();
  // Text can arrive faster than it renders: rendering may lag, typing must not.
  const text = useDeferredValue(item.text);
  return (
    <article className={styles.answer} aria-label={item.by ?? t("chat.agent")} aria-busy={!item.isComplete}>
      {item.by && <span className={styles.author}>{item.by}</span>}
      {(item.thought || item.thinking) && <AnswerThought item={item} />}
      {text && <Markdown text={text} code={InlineFileCode} image={WorkspaceImage} />}
      {item.calls.map((id) => {
        const call = calls[id];
        // The plan is shown above the composer.
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

/** The agent's thought, folded; its duration is known only while streaming. */
function AnswerThought({ item }: { item: AnswerItem }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const startedAt = useRef(item.thinking ? performance.now() : 0);
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    if (!startedAt.current) return;
    const count = () => setSeconds(Math.round((performance.now() - startedAt.current) / 1000));
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
