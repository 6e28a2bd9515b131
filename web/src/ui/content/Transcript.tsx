/** Readable transcript of an agent: text, thoughts, tool calls and results. */

import { Bot, Brain, ChevronRight, CircleUser, type LucideIcon, ScrollText, Wrench } from "lucide-react";
import { memo, type ReactNode, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Badge } from "../controls/Badge";
import { Button } from "../controls/Button";
import { formatBytes } from "../format/formats";
import { Markdown } from "./Markdown";
import styles from "./Transcript.module.css";

export type Speaker = "system" | "user" | "assistant";
const ICONS: Record<Speaker, LucideIcon> = { system: ScrollText, user: CircleUser, assistant: Bot };
/** Characters after which text is cut until expanded. */
const MAX_CHARACTERS = 12_000;

interface TranscriptTurnProps {
  by: Speaker;
  /** Shown beside the speaker: a time, a link. */
  metadata?: ReactNode;
  /** Scripted, not written by a model. */
  scripted?: boolean;
  children: ReactNode;
}

/** One turn of a speaker. */
export function TranscriptTurn({ by, metadata, scripted, children }: TranscriptTurnProps) {
  const { t } = useTranslation();
  const Icon = ICONS[by];
  return (
    <article className={`${styles.turn} ${styles[by]}`}>
      <header className={styles.speaker}>
        <Icon size={16} aria-hidden />
        <span>{t(`transcript.${by}`)}</span>
        {scripted && <Badge title={t("transcript.scriptedHint")}>{t("transcript.scripted")}</Badge>}
        <span className={styles.metadata}>{metadata}</span>
      </header>
      <div className={styles.parts}>{children}</div>
    </article>
  );
}

/** Text of a turn; long text is cut, with a button that expands it. */
export const TranscriptText = memo(function TranscriptText({ text, plain }: { text: string; plain?: boolean }) {
  return (
    <ExpandableText text={text}>
      {(shown) => (plain ? <div className={styles.plain}>{shown}</div> : <Markdown text={shown} />)}
    </ExpandableText>
  );
});

export function TranscriptThought({ text }: { text: string }) {
  const { t } = useTranslation();
  return (
    <FoldableSection icon={Brain} title={t("transcript.thought")} about={firstLine(text)}>
      <div className={styles.thought}>
        <TranscriptText text={text} plain />
      </div>
    </FoldableSection>
  );
}

interface ToolCallProps {
  name: string;
  /** An object, or the raw text of the model. */
  args: unknown;
  /** Undefined while there is none. */
  result?: ReactNode;
  failed?: boolean;
  /** The call is running. */
  running?: boolean;
  open?: boolean;
}

/** A tool call and its result, folded to one line. */
export const ToolCallCard = memo(function ToolCallCard({ name, args, result, failed, running, open }: ToolCallProps) {
  const { t } = useTranslation();
  return (
    <FoldableSection
      icon={Wrench}
      title={name}
      mono
      open={open}
      about={firstTextArgument(args)}
      badge={
        failed ? (
          <Badge tone="danger">{t("transcript.failed")}</Badge>
        ) : running ? (
          <Badge tone="info">{t("transcript.running")}</Badge>
        ) : null
      }
    >
      <p className={styles.label}>{t("transcript.arguments")}</p>
      <ToolCallArguments args={args} />
      <p className={styles.label}>{t("transcript.result")}</p>
      {result ?? <p className={styles.soft}>{t("transcript.noResult")}</p>}
    </FoldableSection>
  );
});

/** Program output. `growing` sticks to the end while more arrives. */
export function ProgramOutput({ text, failed, growing }: { text: string; failed?: boolean; growing?: boolean }) {
  const frame = useRef<HTMLPreElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scroll when content is added.
  useEffect(() => {
    if (growing && frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [text, growing]);
  return (
    <ExpandableText text={text}>
      {(shown) => (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
        <pre ref={frame} className={failed ? styles.failed : styles.output} tabIndex={0}>
          {shown}
        </pre>
      )}
    </ExpandableText>
  );
}

function ToolCallArguments({ args }: { args: unknown }) {
  const fields = argumentFields(args);
  if (!fields) return <ProgramOutput text={typeof args === "string" ? args : JSON.stringify(args, null, 2)} />;
  return (
    <dl className={styles.arguments}>
      {Object.entries(fields).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <ProgramOutput text={typeof value === "string" ? value : JSON.stringify(value, null, 2)} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

interface FoldableSectionProps {
  icon?: LucideIcon;
  title: string;
  /** Title shown while folded. */
  about?: ReactNode;
  badge?: ReactNode;
  mono?: boolean;
  open?: boolean;
  children: ReactNode;
}

export function FoldableSection({
  icon: Icon,
  title,
  about,
  badge,
  mono,
  open = false,
  children,
}: FoldableSectionProps) {
  const [shown, setShown] = useState(open);
  return (
    <details className={styles.fold} open={shown} onToggle={(event) => setShown(event.currentTarget.open)}>
      <summary>
        <ChevronRight className={styles.arrow} size={15} aria-hidden />
        {Icon && <Icon size={15} aria-hidden />}
        <span className={mono ? styles.mono : styles.strong}>{title}</span>
        <span className={styles.about}>{about}</span>
        {badge}
      </summary>
      {/* Folded content is not rendered: a conversation may have thousands of sections. */}
      {shown && <div className={styles.inside}>{children}</div>}
    </details>
  );
}

function ExpandableText({ text, children }: { text: string; children: (shown: string) => ReactNode }) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  if (all || text.length <= MAX_CHARACTERS) return <>{children(text)}</>;
  return (
    <>
      {children(`${text.slice(0, MAX_CHARACTERS)}…`)}
      <Button size="small" onClick={() => setAll(true)}>
        {t("transcript.showAll", { size: formatBytes(text.length) })}
      </Button>
    </>
  );
}

function argumentFields(args: unknown): Record<string, unknown> | null {
  let value = args;
  if (typeof args === "string") {
    try {
      value = JSON.parse(args);
    } catch {
      return null;
    }
  }
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : null;
}

/** One-line summary of a call: its first text argument. */
export function firstTextArgument(args: unknown): string {
  const fields = argumentFields(args);
  if (!fields) return typeof args === "string" ? firstLine(args) : "";
  const first = Object.values(fields).find((value) => typeof value === "string" && value.trim() !== "");
  return firstLine(typeof first === "string" ? first : "");
}

function firstLine(text: string): string {
  return (text.trimStart().split("\n", 1)[0] ?? "").slice(0, 200);
}
