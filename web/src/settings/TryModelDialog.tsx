import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, TextArea, TextInput } from "@/ui/controls/forms";
import { formatAmount, formatDuration } from "@/ui/format/formats";
import { ErrorState } from "@/ui/layout/query-states";
import { askModel } from "./model-test-request";
import styles from "./SettingsPage.module.css";

/** Sends a model one question, to check that it answers. */
export function TryModelDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const { t, i18n } = useTranslation();
  const client = useQueryClient();
  const [model, setModel] = useState(name);
  const [question, setQuestion] = useState(t("settings.try.question"));
  const stop = useRef<AbortController | null>(null);
  useEffect(() => () => stop.current?.abort(), []);
  const testRequest = useMutation({
    mutationFn: () => {
      stop.current = new AbortController();
      return askModel(model.trim(), question, stop.current.signal);
    },
    // The response also updates the provider's state.
    onSettled: () => client.invalidateQueries({ queryKey: ["settings", "llm"] }),
  });
  const pattern = model.includes("*");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!pattern && model.trim() && question.trim()) testRequest.mutate();
  };
  return (
    <Dialog open onClose={onClose} title={t("settings.try.title")}>
      <form onSubmit={submit} className={styles.form}>
        <Field label={t("settings.models.name")} error={pattern ? t("settings.try.pattern") : null}>
          <TextInput value={model} onChange={(event) => setModel(event.target.value)} />
        </Field>
        <Field label={t("settings.try.ask")}>
          <TextArea rows={2} value={question} onChange={(event) => setQuestion(event.target.value)} />
        </Field>
        <div className={styles.row}>
          <Button
            tone="accent"
            type="submit"
            busy={testRequest.isPending}
            disabled={pattern || !model.trim() || !question.trim()}
          >
            {t("settings.try.go")}
          </Button>
          <span className={styles.soft}>{t("settings.try.about")}</span>
        </div>
      </form>
      <div role="status">
        {testRequest.error && <ErrorState error={testRequest.error} />}
        {testRequest.data && (
          <div className={styles.section}>
            <p className={styles.answer}>{testRequest.data.text || t("settings.try.silent")}</p>
            <p className={styles.row}>
              {testRequest.data.script && <Badge tone="info">{t("settings.models.script")}</Badge>}
              <span className={styles.soft}>
                {formatDuration(testRequest.data.seconds)}
                {testRequest.data.tokens !== null &&
                  ` · ${t("settings.try.tokens", { count: testRequest.data.tokens, value: formatAmount(testRequest.data.tokens, i18n.language) })}`}
              </span>
              {testRequest.data.exchange && (
                <Link href={`/archive/${encodeURIComponent(testRequest.data.exchange)}`}>
                  {t("settings.try.archive")}
                </Link>
              )}
            </p>
          </div>
        )}
      </div>
    </Dialog>
  );
}
