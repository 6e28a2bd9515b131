/** What an agent said and did, to be read: words, thoughts, calls of tools and what came of them. */

import { Bot, Brain, ChevronRight, CircleUser, type LucideIcon, ScrollText, Wrench } from "lucide-react";
import { memo, type ReactNode, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Badge } from "./Badge";
import { Button } from "./Button";
import { Markdown } from "./Markdown";
import { size } from "./Time";
import styles from "./Transcript.module.css";

export type Speaker = "system" | "user" | "assistant";
const ICONS: Record<Speaker, LucideIcon> = { system: ScrollText, user: CircleUser, assistant: Bot };
/** Letters beyond which a text is cut until it is asked for. */
const LONG = 12_000;

interface SaidProps {
  by: Speaker;
  /** Beside who said it: a time, a link. */
  aside?: ReactNode;
  /** No model said this. */
  scripted?: boolean;
  children: ReactNode;
}

/** One turn of somebody, with all that belongs to it. */
export function Said({ by, aside, scripted, children }: SaidProps) {
  const { t } = useTranslation();
  const Icon = ICONS[by];
  return (
    <article className={`${styles.said} ${styles[by]}`}>
      <header className={styles.who}>
        <Icon size={16} aria-hidden />
        <span>{t(`transcript.${by}`)}</span>
        {scripted && <Badge title={t("transcript.scriptedHint")}>{t("transcript.scripted")}</Badge>}
        <span className={styles.aside}>{aside}</span>
      </header>
      <div className={styles.parts}>{children}</div>
    </article>
  );
}

/** Text that was said; long ones are cut, with a button that shows the rest. */
export const Words = memo(function Words({ text, plain }: { text: string; plain?: boolean }) {
  return (
    <Cut text={text}>
      {(shown) => (plain ? <div className={styles.plain}>{shown}</div> : <Markdown text={shown} />)}
    </Cut>
  );
});

export function Thought({ text }: { text: string }) {
  const { t } = useTranslation();
  return (
    <Fold icon={Brain} title={t("transcript.thought")} about={firstLine(text)}>
      <div className={styles.thought}>
        <Words text={text} plain />
      </div>
    </Fold>
  );
}

interface CallProps {
  name: string;
  /** An object, or the text that the model wrote. */
  args: unknown;
  /** Undefined while there is none. */
  result?: ReactNode;
  failed?: boolean;
  /** It is under way. */
  running?: boolean;
  open?: boolean;
}

/** A call of a tool and its result, folded to one line until it is opened. */
export const CallCard = memo(function CallCard({ name, args, result, failed, running, open }: CallProps) {
  const { t } = useTranslation();
  return (
    <Fold
      icon={Wrench}
      title={name}
      mono
      open={open}
      about={brief(args)}
      badge={
        failed ? (
          <Badge tone="danger">{t("transcript.failed")}</Badge>
        ) : running ? (
          <Badge tone="info">{t("transcript.running")}</Badge>
        ) : null
      }
    >
      <p className={styles.label}>{t("transcript.arguments")}</p>
      <Arguments args={args} />
      <p className={styles.label}>{t("transcript.result")}</p>
      {result ?? <p className={styles.soft}>{t("transcript.noResult")}</p>}
    </Fold>
  );
});

/** What a program wrote. `growing` keeps its end in view while more comes. */
export function Output({ text, failed, growing }: { text: string; failed?: boolean; growing?: boolean }) {
  const frame = useRef<HTMLPreElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: whenever there is more to see.
  useEffect(() => {
    if (growing && frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [text, growing]);
  return (
    <Cut text={text}>
      {(shown) => (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
        <pre ref={frame} className={failed ? styles.failed : styles.output} tabIndex={0}>
          {shown}
        </pre>
      )}
    </Cut>
  );
}

function Arguments({ args }: { args: unknown }) {
  const fields = fieldsOf(args);
  if (!fields) return <Output text={typeof args === "string" ? args : JSON.stringify(args, null, 2)} />;
  return (
    <dl className={styles.arguments}>
      {Object.entries(fields).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <Output text={typeof value === "string" ? value : JSON.stringify(value, null, 2)} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

interface FoldProps {
  icon?: LucideIcon;
  title: string;
  /** What can be seen of it while it is folded. */
  about?: string;
  badge?: ReactNode;
  mono?: boolean;
  open?: boolean;
  children: ReactNode;
}

export function Fold({ icon: Icon, title, about, badge, mono, open = false, children }: FoldProps) {
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
      {/* What is folded is not drawn: a conversation may have thousands of these. */}
      {shown && <div className={styles.inside}>{children}</div>}
    </details>
  );
}

function Cut({ text, children }: { text: string; children: (shown: string) => ReactNode }) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  if (all || text.length <= LONG) return <>{children(text)}</>;
  return (
    <>
      {children(`${text.slice(0, LONG)}…`)}
      <Button size="small" onClick={() => setAll(true)}>
        {t("transcript.showAll", { size: size(text.length) })}
      </Button>
    </>
  );
}

function fieldsOf(args: unknown): Record<string, unknown> | null {
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

/** One line that says what a call is about: its first argument that is text. */
export function brief(args: unknown): string {
  const fields = fieldsOf(args);
  if (!fields) return typeof args === "string" ? firstLine(args) : "";
  const first = Object.values(fields).find((value) => typeof value === "string" && value.trim() !== "");
  return firstLine(typeof first === "string" ? first : "");
}

function firstLine(text: string): string {
  return (text.trimStart().split("\n", 1)[0] ?? "").slice(0, 200);
}
