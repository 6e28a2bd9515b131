import { FileText } from "lucide-react";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import {
  FoldableSection,
  ProgramOutput,
  ToolCallCard,
  TranscriptText,
  TranscriptThought,
  TranscriptTurn,
} from "@/ui/content/Transcript";
import { Button } from "@/ui/controls/Button";
import type { ChatMessage, MessagePart, ResultPart } from "./api";
import styles from "./archive.module.css";
import { groupMessagesIntoTurns, imageDataUrl, joinTextParts, systemReminderText } from "./message-turns";

/** Turns rendered at first. */
const INITIAL_TURNS = 100;

interface Props {
  messages: ChatMessage[];
  /** The answers came from a script or a recording. */
  scripted?: boolean;
}

/** Readable conversation: system text folded, tools as cards. Long ones start at their end. */
export function ArchivedMessages({ messages, scripted }: Props) {
  const { t } = useTranslation();
  const [shown, setShown] = useState(INITIAL_TURNS);
  const { turns, results } = useMemo(() => groupMessagesIntoTurns(messages), [messages]);
  return (
    <div className={styles.messages}>
      {turns.length > shown && (
        <Button size="small" onClick={() => setShown(shown + 500)}>
          {t("archive.earlier", { count: turns.length - shown })}
        </Button>
      )}
      {turns.slice(-shown).map((turn) =>
        turn.role === "system" ? (
          <FoldableSection
            key={turn.index}
            icon={FileText}
            title={t("transcript.system")}
            about={joinTextParts(turn.parts).trim().split("\n", 1)[0]}
          >
            <MessageParts parts={turn.parts} results={results} plain />
          </FoldableSection>
        ) : (
          <TranscriptTurn key={turn.index} by={turn.role} scripted={scripted && turn.role === "assistant"}>
            <MessageParts parts={turn.parts} results={results} plain={turn.role === "user"} />
          </TranscriptTurn>
        ),
      )}
    </div>
  );
}

interface MessagePartsProps {
  parts: MessagePart[];
  results: ReadonlyMap<string, ResultPart>;
  /** Show text as is, not as Markdown. */
  plain?: boolean;
}

export function MessageParts({ parts, results, plain }: MessagePartsProps) {
  const { t } = useTranslation();
  return parts.map((part, index) => {
    switch (part.type) {
      case "text":
      case "refusal":
        return plain && systemReminderText(part.text) ? (
          <FoldableSection
            key={index}
            icon={FileText}
            title={systemReminderText(part.text) ?? ""}
            about={t("archive.note")}
          >
            <TranscriptText text={part.text} plain />
          </FoldableSection>
        ) : (
          <TranscriptText key={index} text={part.text} plain={plain} />
        );
      case "thinking":
        return part.text ? <TranscriptThought key={index} text={part.text} /> : null;
      case "media":
        return <MediaPartView key={index} part={part} />;
      case "toolCall": {
        const result = results.get(part.id);
        return (
          <ToolCallCard
            key={index}
            name={part.name}
            args={part.arguments}
            failed={result?.isError}
            result={result && <PartContent parts={result.content} failed={result.isError} />}
          />
        );
      }
      default:
        return null;
    }
  });
}

function PartContent({ parts, failed }: { parts: MessagePart[]; failed?: boolean }) {
  return parts.map((part, index) =>
    part.type === "text" ? (
      <ProgramOutput key={index} text={part.text} failed={failed} />
    ) : part.type === "media" ? (
      <MediaPartView key={index} part={part} />
    ) : null,
  );
}

function MediaPartView({ part }: { part: Extract<MessagePart, { type: "media" }> }) {
  const { t } = useTranslation();
  const picture = imageDataUrl(part);
  if (picture) return <img className={styles.picture} src={picture} alt={part.name ?? t("transcript.picture")} />;
  return (
    <p className={styles.soft}>
      {part.url && !part.url.startsWith("data:")
        ? t("transcript.elsewhere", { url: part.url })
        : t("transcript.file", { name: part.name ?? part.mediaType ?? part.kind })}
    </p>
  );
}
