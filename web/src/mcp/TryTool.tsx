import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Play, Square } from "lucide-react";
import { type FormEvent, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { Field, Select, TextArea, TextInput } from "@/ui/controls/forms";
import { Switch } from "@/ui/controls/Switch";
import { formatDuration } from "@/ui/format/formats";
import { ErrorState } from "@/ui/layout/query-states";
import { callMcpTool, type McpProgress, type McpServer, type McpTool } from "./api";
import styles from "./mcp.module.css";
import {
  type ArgumentField,
  argumentProblem,
  argumentsFromTexts,
  fieldsOfSchema,
  initialTexts,
  parseArgumentObject,
  textsFromArguments,
} from "./schema-form";
import { ToolResult } from "./ToolResult";

/** Form that calls a tool and shows its progress and result. */
export function TryTool({ server, tool, sandbox }: { server: McpServer; tool: McpTool; sandbox: string }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const fields = useMemo(() => fieldsOfSchema(tool.inputSchema), [tool.inputSchema]);
  const [texts, setTexts] = useState(() => initialTexts(fields ?? []));
  const [json, setJson] = useState<string | null>(fields === null ? "{}" : null);
  const [progress, setProgress] = useState<McpProgress | null>(null);
  const stop = useRef<AbortController | null>(null);
  useEffect(() => () => stop.current?.abort(), []);
  const call = useMutation({
    mutationFn: async (args: Record<string, unknown>) => {
      setProgress(null);
      const controller = new AbortController();
      stop.current = controller;
      try {
        return await callMcpTool(
          server.name,
          { tool: tool.name, arguments: args },
          sandbox,
          controller.signal,
          setProgress,
        );
      } catch (error) {
        if (controller.signal.aborted) return null;
        throw error;
      }
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ["mcp", "calls"] }),
  });

  const parsed = json === null ? null : parseArgumentObject(json);
  const problems = (fields ?? []).map((field) => argumentProblem(field, texts[field.name] ?? ""));
  const isValid = json === null ? problems.every((problem) => problem === null) : typeof parsed !== "string";
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!isValid || call.isPending) return;
    call.mutate(parsed !== null && typeof parsed !== "string" ? parsed : argumentsFromTexts(fields ?? [], texts));
  };
  const toggleJson = (on: boolean) => {
    if (on) setJson(JSON.stringify(argumentsFromTexts(fields ?? [], texts), null, 2));
    else {
      const shown = fields && parsed && typeof parsed !== "string" ? textsFromArguments(fields, parsed) : null;
      if (shown) setTexts(shown);
      setJson(null);
    }
  };
  const canLeaveJson =
    json === null ||
    (fields !== null && parsed !== null && typeof parsed !== "string" && textsFromArguments(fields, parsed) !== null);

  return (
    <form className={styles.form} onSubmit={submit} aria-label={t("mcp.try.form", { tool: tool.name })}>
      {json === null ? (
        fields?.map((field, index) => (
          <ArgumentInput
            key={field.name}
            field={field}
            text={texts[field.name] ?? ""}
            problem={problems[index] ?? null}
            onChange={(text) => setTexts((before) => ({ ...before, [field.name]: text }))}
          />
        ))
      ) : (
        <Field
          label={t("mcp.try.json")}
          error={typeof parsed === "string" ? t(`mcp.try.problems.${parsed}`) : null}
          hint={fields === null ? t("mcp.try.jsonOnly") : undefined}
        >
          <TextArea
            rows={6}
            spellCheck={false}
            className={styles.mono}
            value={json}
            onChange={(event) => setJson(event.target.value)}
          />
        </Field>
      )}
      <div className={styles.row}>
        <Button tone="accent" type="submit" icon={Play} busy={call.isPending} disabled={!isValid}>
          {t("mcp.try.go")}
        </Button>
        {call.isPending && (
          <Button icon={Square} onClick={() => stop.current?.abort()}>
            {t("mcp.try.stop")}
          </Button>
        )}
        {fields !== null && fields.length > 0 && (
          <Switch label={t("mcp.try.asJson")} checked={json !== null} disabled={!canLeaveJson} onChange={toggleJson} />
        )}
      </div>
      <div role="status" className={styles.stackTight}>
        {call.isPending && progress && <ProgressLine progress={progress} />}
        {call.error && <ErrorState error={call.error} />}
        {call.data === null && <p className={styles.soft}>{t("mcp.try.stopped")}</p>}
        {call.data && (
          <>
            <p className={styles.row}>
              <Badge tone={call.data.result.isError ? "danger" : "good"}>
                {t(call.data.result.isError ? "mcp.outcomes.tool_error" : "mcp.outcomes.ok")}
              </Badge>
              <span className={styles.soft}>{formatDuration(call.data.seconds)}</span>
            </p>
            <ToolResult result={call.data.result} />
          </>
        )}
      </div>
    </form>
  );
}

interface ArgumentInputProps {
  field: ArgumentField;
  text: string;
  problem: string | null;
  onChange: (text: string) => void;
}

function ArgumentInput({ field, text, problem, onChange }: ArgumentInputProps) {
  const { t } = useTranslation();
  const label = field.required ? field.name : t("mcp.try.optional", { name: field.name });
  // An untouched field is not wrong yet.
  const error = problem && problem !== "required" ? t(`mcp.try.problems.${problem}`) : null;
  const none = field.required ? t("mcp.try.choose") : t("mcp.try.leaveOut");
  const options =
    field.type === "boolean"
      ? ["true", "false"].map((value) => ({ value, label: value }))
      : field.choices.map((choice, index) => ({
          value: String(index),
          label: typeof choice === "string" ? choice : JSON.stringify(choice),
        }));
  const change = (event: { target: { value: string } }) => onChange(event.target.value);
  return (
    <Field label={label} hint={field.description || undefined} error={error}>
      {field.type === "boolean" || field.type === "choice" ? (
        <Select value={text} onChange={onChange} options={[{ value: "", label: none }, ...options]} />
      ) : field.type === "json" || field.type === "longText" ? (
        <TextArea
          rows={3}
          value={text}
          spellCheck={field.type === "longText"}
          className={field.type === "json" ? styles.mono : undefined}
          placeholder={field.type === "json" ? "JSON" : undefined}
          onChange={change}
        />
      ) : (
        <TextInput
          value={text}
          inputMode={field.type === "text" ? undefined : field.type === "integer" ? "numeric" : "decimal"}
          aria-required={field.required}
          onChange={change}
        />
      )}
    </Field>
  );
}

function ProgressLine({ progress }: { progress: McpProgress }) {
  const { t } = useTranslation();
  const { progress: done, total, message } = progress;
  return (
    <div className={styles.progress}>
      <progress max={total} value={total ? done : undefined} aria-label={t("mcp.try.progress")} />
      <span className={styles.soft}>{message || (done !== undefined && (total ? `${done} / ${total}` : done))}</span>
    </div>
  );
}
