import { FileText } from "lucide-react";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/Button";
import { CallCard, Fold, Output, Said, Thought, Words } from "@/ui/Transcript";
import styles from "./archive.module.css";
import type { ChatMessage, Part, ResultPart } from "./asking";
import { noteOf, pictureOf, reading, wordsOf } from "./reading";

/** Turns that are drawn at first. */
const SHOWN = 100;

interface Props {
  messages: ChatMessage[];
  /** A script or a recording gave the answers. */
  scripted?: boolean;
}

/** A conversation to be read: the system's words folded, tools as cards. Of a long one its end comes first. */
export function Messages({ messages, scripted }: Props) {
  const { t } = useTranslation();
  const [shown, setShown] = useState(SHOWN);
  const { turns, results } = useMemo(() => reading(messages), [messages]);
  return (
    <div className={styles.messages}>
      {turns.length > shown && (
        <Button size="small" onClick={() => setShown(shown + 500)}>
          {t("archive.earlier", { count: turns.length - shown })}
        </Button>
      )}
      {turns.slice(-shown).map((turn) =>
        turn.role === "system" ? (
          <Fold
            key={turn.index}
            icon={FileText}
            title={t("transcript.system")}
            about={wordsOf(turn.parts).trim().split("\n", 1)[0]}
          >
            <Parts parts={turn.parts} results={results} plain />
          </Fold>
        ) : (
          <Said key={turn.index} by={turn.role} scripted={scripted && turn.role === "assistant"}>
            <Parts parts={turn.parts} results={results} plain={turn.role === "user"} />
          </Said>
        ),
      )}
    </div>
  );
}

interface PartsProps {
  parts: Part[];
  results: ReadonlyMap<string, ResultPart>;
  /** As it was written, and not as Markdown. */
  plain?: boolean;
}

export function Parts({ parts, results, plain }: PartsProps) {
  const { t } = useTranslation();
  return parts.map((part, index) => {
    switch (part.type) {
      case "text":
      case "refusal":
        return plain && noteOf(part.text) ? (
          <Fold key={index} icon={FileText} title={noteOf(part.text) ?? ""} about={t("archive.note")}>
            <Words text={part.text} plain />
          </Fold>
        ) : (
          <Words key={index} text={part.text} plain={plain} />
        );
      case "thinking":
        return part.text ? <Thought key={index} text={part.text} /> : null;
      case "media":
        return <Media key={index} part={part} />;
      case "toolCall": {
        const result = results.get(part.id);
        return (
          <CallCard
            key={index}
            name={part.name}
            args={part.arguments}
            failed={result?.isError}
            result={result && <Content parts={result.content} failed={result.isError} />}
          />
        );
      }
      default:
        return null;
    }
  });
}

function Content({ parts, failed }: { parts: Part[]; failed?: boolean }) {
  return parts.map((part, index) =>
    part.type === "text" ? (
      <Output key={index} text={part.text} failed={failed} />
    ) : part.type === "media" ? (
      <Media key={index} part={part} />
    ) : null,
  );
}

function Media({ part }: { part: Extract<Part, { type: "media" }> }) {
  const { t } = useTranslation();
  const picture = pictureOf(part);
  if (picture) return <img className={styles.picture} src={picture} alt={part.name ?? t("transcript.picture")} />;
  return (
    <p className={styles.soft}>
      {part.url && !part.url.startsWith("data:")
        ? t("transcript.elsewhere", { url: part.url })
        : t("transcript.file", { name: part.name ?? part.mediaType ?? part.kind })}
    </p>
  );
}
