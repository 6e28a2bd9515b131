import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { CallView } from "@/session/types";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { DiffView } from "@/ui/content/Diff";
import { sandboxForCall, useChatContext } from "../chat-context";
import { LongTextView } from "./CallResult";
import styles from "./calls.module.css";
import { findTextReplacement, isFileWriteCall, readCurrentFile, writtenFilePath } from "./file-change";
import { identifyTool, toolCategory } from "./tool-labels";

/** Longer values are folded. */
const MAX_VALUE_CHARACTERS = 4000;

/** Arguments of a call, rendered by kind of tool. */
export function CallArguments({ call, fold }: { call: CallView; fold?: boolean }) {
  const { t } = useTranslation();
  const { tool } = identifyTool(call, useChatContext().kinds);
  const args = call.arguments;
  if (call.malformed !== null) return <LongTextView failed label={t("chat.malformed")} text={call.malformed} />;
  if (!args) return call.argumentsJson ? <LongTextView label={t("chat.writing")} text={call.argumentsJson} /> : null;
  const { command, code, ...rest } = args;
  if (toolCategory(tool) === "command" && typeof command === "string")
    return (
      <>
        <CodeBlock text={command} label={t("chat.command")} fileName="command.sh" wrap fold={fold} />
        <ArgumentFields args={rest} />
      </>
    );
  if (toolCategory(tool) === "python" && typeof code === "string")
    return (
      <>
        <CodeBlock text={code} label="python" fileName="cell.py" fold={fold} />
        <ArgumentFields args={rest} />
      </>
    );
  if (isFileWriteCall(tool, args)) return <FileChange call={call} args={args} />;
  const replacement = findTextReplacement(args);
  if (replacement)
    return (
      <>
        <ArgumentFields args={replacement.rest} />
        <DiffView
          before={replacement.before}
          after={replacement.after}
          label={String(args.path ?? args.file_path ?? "")}
        />
      </>
    );
  return <ArgumentFields args={args} />;
}

/** File change of a write call: a diff with the current file, or only the new text once it is done. */
function FileChange({ call, args }: { call: CallView; args: Record<string, unknown> }) {
  const { t } = useTranslation();
  const { sandboxes } = useChatContext();
  const sandbox = sandboxForCall(sandboxes, call.sandbox, call.kind);
  const path = writtenFilePath(args);
  const content = String(args.content ?? "");
  const isPlainText = args.encoding !== "base64";
  const open = call.progress !== "done";
  const currentFile = useQuery({
    queryKey: ["chat", "before", call.id, path],
    queryFn: ({ signal }) => readCurrentFile(sandbox?.id ?? "", path, signal),
    enabled: open && isPlainText && sandbox?.state === "ready",
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 3_600_000,
    retry: false,
  });
  const after = useMemo(
    () =>
      args.append === true && typeof currentFile.data?.text === "string" ? currentFile.data.text + content : content,
    [args.append, currentFile.data, content],
  );
  if (!isPlainText) return <ArgumentFields args={args} />;
  if (currentFile.data && currentFile.data.text !== null)
    return (
      <DiffView
        before={currentFile.data.text}
        after={after}
        label={currentFile.data.isNew ? t("chat.newFile", { path }) : path}
      />
    );
  return <LongTextView text={content} label={args.append === true ? t("chat.appended", { path }) : path} />;
}

/** Arguments as name-value pairs. */
export function ArgumentFields({ args }: { args: Record<string, unknown> }) {
  const entries = Object.entries(args).filter(([, value]) => value !== undefined && value !== null);
  if (!entries.length) return null;
  return (
    <dl className={styles.fields}>
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <ArgumentValue value={value} label={name} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** A value; a long one is folded, because approving a call covers all of it. */
function ArgumentValue({ value, label }: { value: unknown; label: string }) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 1);
  if (text.length > MAX_VALUE_CHARACTERS)
    return <LongTextView text={text} label={label} maxCharacters={MAX_VALUE_CHARACTERS} />;
  return typeof value === "string" ? text : <code>{text}</code>;
}
