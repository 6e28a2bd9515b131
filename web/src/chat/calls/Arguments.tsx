import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { CallView } from "@/session/types";
import { Code } from "@/ui/Code";
import { Diff } from "@/ui/Diff";
import { boxOf, useChat } from "../context";
import styles from "./calls.module.css";
import { before, isWrite, replaced, writtenTo } from "./change";
import { LongText } from "./Result";
import { known, sortOf } from "./words";

/** What a call is given, each sort in its own way. */
export function Arguments({ call, fold }: { call: CallView; fold?: boolean }) {
  const { t } = useTranslation();
  const { tool } = known(call, useChat().kinds);
  const given = call.arguments;
  if (call.malformed !== null) return <LongText failed label={t("chat.malformed")} text={call.malformed} />;
  if (!given) return call.written ? <LongText label={t("chat.writing")} text={call.written} /> : null;
  const { command, code, ...rest } = given;
  if (sortOf(tool) === "command" && typeof command === "string")
    return (
      <>
        <Code text={command} label={t("chat.command")} fileName="command.sh" wrap fold={fold} />
        <Fields given={rest} />
      </>
    );
  if (sortOf(tool) === "python" && typeof code === "string")
    return (
      <>
        <Code text={code} label="python" fileName="cell.py" fold={fold} />
        <Fields given={rest} />
      </>
    );
  if (isWrite(tool, given)) return <Change call={call} given={given} />;
  const pair = replaced(given);
  if (pair)
    return (
      <>
        <Fields given={pair.rest} />
        <Diff before={pair.before} after={pair.after} label={String(given.path ?? given.file_path ?? "")} />
      </>
    );
  return <Fields given={given} />;
}

/** What a write makes of a file, against what is in the box now; once it is done, only what was written. */
function Change({ call, given }: { call: CallView; given: Record<string, unknown> }) {
  const { t } = useTranslation();
  const { boxes } = useChat();
  const box = boxOf(boxes, call.sandbox, call.kind);
  const path = writtenTo(given);
  const content = String(given.content ?? "");
  const plain = given.encoding !== "base64";
  const open = call.progress !== "done";
  const earlier = useQuery({
    queryKey: ["chat", "before", call.id, path],
    queryFn: ({ signal }) => before(box?.id ?? "", path, signal),
    enabled: open && plain && box?.state === "ready",
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 3_600_000,
    retry: false,
  });
  const after = useMemo(
    () => (given.append === true && typeof earlier.data?.text === "string" ? earlier.data.text + content : content),
    [given.append, earlier.data, content],
  );
  if (!plain) return <Fields given={given} />;
  if (earlier.data && earlier.data.text !== null)
    return (
      <Diff before={earlier.data.text} after={after} label={earlier.data.isNew ? t("chat.newFile", { path }) : path} />
    );
  return <LongText text={content} label={given.append === true ? t("chat.appended", { path }) : path} />;
}

/** Arguments by their names. */
export function Fields({ given }: { given: Record<string, unknown> }) {
  const entries = Object.entries(given).filter(([, value]) => value !== undefined && value !== null);
  if (!entries.length) return null;
  return (
    <dl className={styles.fields}>
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof value === "string" ? short(value) : <code>{short(JSON.stringify(value, null, 1))}</code>}</dd>
        </div>
      ))}
    </dl>
  );
}

function short(text: string): string {
  return text.length > 4000 ? `${text.slice(0, 4000)}…` : text;
}
