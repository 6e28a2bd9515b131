import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { CallView } from "@/session/types";
import { Code } from "@/ui/content/Code";
import { DiffView } from "@/ui/content/Diff";
import { sandboxForCall, useChat } from "../chat-context";
import { LongTextView } from "./CallResult";
import styles from "./calls.module.css";
import { isFileWrite, readCurrentFile, replacementTexts, writtenText } from "./file-change";
import { identifyTool, toolCategory } from "./tool-labels";

/** Arguments of a call, rendered by kind of tool. */
export function CallArguments({ call, fold }: { call: CallView; fold?: boolean }) {
  const { t } = useTranslation();
  const { tool } = identifyTool(call, useChat().kinds);
  const given = call.arguments;
  if (call.malformed !== null) return <LongTextView failed label={t("chat.malformed")} text={call.malformed} />;
  if (!given) return call.written ? <LongTextView label={t("chat.writing")} text={call.written} /> : null;
  const { command, code, ...rest } = given;
  if (toolCategory(tool) === "command" && typeof command === "string")
    return (
      <>
        <Code text={command} label={t("chat.command")} fileName="command.sh" wrap fold={fold} />
        <ArgumentFields given={rest} />
      </>
    );
  if (toolCategory(tool) === "python" && typeof code === "string")
    return (
      <>
        <Code text={code} label="python" fileName="cell.py" fold={fold} />
        <ArgumentFields given={rest} />
      </>
    );
  if (isFileWrite(tool, given)) return <FileChange call={call} given={given} />;
  const pair = replacementTexts(given);
  if (pair)
    return (
      <>
        <ArgumentFields given={pair.rest} />
        <DiffView before={pair.before} after={pair.after} label={String(given.path ?? given.file_path ?? "")} />
      </>
    );
  return <ArgumentFields given={given} />;
}

/** File change of a write call: a diff with the current file, or only the new text once it is done. */
function FileChange({ call, given }: { call: CallView; given: Record<string, unknown> }) {
  const { t } = useTranslation();
  const { sandboxes } = useChat();
  const sandbox = sandboxForCall(sandboxes, call.sandbox, call.kind);
  const path = writtenText(given);
  const content = String(given.content ?? "");
  const plain = given.encoding !== "base64";
  const open = call.progress !== "done";
  const earlier = useQuery({
    queryKey: ["chat", "before", call.id, path],
    queryFn: ({ signal }) => readCurrentFile(sandbox?.id ?? "", path, signal),
    enabled: open && plain && sandbox?.state === "ready",
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 3_600_000,
    retry: false,
  });
  const after = useMemo(
    () => (given.append === true && typeof earlier.data?.text === "string" ? earlier.data.text + content : content),
    [given.append, earlier.data, content],
  );
  if (!plain) return <ArgumentFields given={given} />;
  if (earlier.data && earlier.data.text !== null)
    return (
      <DiffView
        before={earlier.data.text}
        after={after}
        label={earlier.data.isNew ? t("chat.newFile", { path }) : path}
      />
    );
  return <LongTextView text={content} label={given.append === true ? t("chat.appended", { path }) : path} />;
}

/** Arguments as name-value pairs. */
export function ArgumentFields({ given }: { given: Record<string, unknown> }) {
  const entries = Object.entries(given).filter(([, value]) => value !== undefined && value !== null);
  if (!entries.length) return null;
  return (
    <dl className={styles.fields}>
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            {typeof value === "string" ? (
              truncateLine(value)
            ) : (
              <code>{truncateLine(JSON.stringify(value, null, 1))}</code>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function truncateLine(text: string): string {
  return text.length > 4000 ? `${text.slice(0, 4000)}…` : text;
}
