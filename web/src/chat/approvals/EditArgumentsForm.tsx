import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/controls/Button";
import { Field, TextArea, TextInput } from "@/ui/controls/forms";
import { Switch } from "@/ui/controls/Switch";
import { argumentFieldKind, parseCallArguments } from "./approval-decisions";
import styles from "./approvals.module.css";

interface Props {
  args: Record<string, unknown>;
  busy: boolean;
  onDone: (changed: Record<string, unknown>) => void;
  onCancel: () => void;
}

/** Form to edit a call's arguments: one field for each, or all as JSON. */
export function EditArgumentsForm({ args, busy, onDone, onCancel }: Props) {
  const { t } = useTranslation();
  const [value, setValue] = useState(args);
  const [text, setText] = useState<string | null>(null);
  /** Typed text of values that are neither text nor number, until it parses. */
  const [drafts, setDrafts] = useState<Record<string, string>>({});
  const parsed = text === null ? null : parseCallArguments(text);
  const problem = parsed && "error" in parsed ? parsed.error : null;
  const hasInvalidDraft = Object.keys(drafts).length > 0;
  const set = (name: string, next: unknown) => setValue({ ...value, [name]: next });
  const setDraft = (name: string, draft: string) => {
    const { [name]: _, ...rest } = drafts;
    try {
      set(name, JSON.parse(draft));
      setDrafts(rest);
    } catch {
      setDrafts({ ...rest, [name]: draft });
    }
  };
  const toggle = () => {
    if (text === null) setText(JSON.stringify(value, null, 2));
    else if (parsed && "value" in parsed) {
      setValue(parsed.value);
      setDrafts({});
      setText(null);
    }
  };
  return (
    <form
      className={styles.form}
      onSubmit={(event) => {
        event.preventDefault();
        if (text === null && !hasInvalidDraft) onDone(value);
        else if (parsed && "value" in parsed) onDone(parsed.value);
      }}
    >
      {text !== null ? (
        <Field
          label={t("chat.arguments")}
          error={problem && (problem === "object" ? t("chat.mustBeObject") : t("chat.notJson", { problem }))}
        >
          <TextArea
            rows={8}
            spellCheck={false}
            className={styles.mono}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </Field>
      ) : (
        Object.entries(value).map(([name, each]) =>
          argumentFieldKind(each) === "switch" ? (
            <Switch key={name} label={name} checked={each === true} onChange={(on) => set(name, on)} />
          ) : (
            <Field key={name} label={name} error={name in drafts ? t("chat.notJson", { problem: "" }) : null}>
              {argumentFieldKind(each) === "text" ? (
                <TextArea
                  rows={Math.min(10, String(each).split("\n").length)}
                  spellCheck={false}
                  className={styles.mono}
                  value={String(each)}
                  onChange={(event) => set(name, event.target.value)}
                />
              ) : (
                <TextInput
                  className={styles.mono}
                  value={drafts[name] ?? JSON.stringify(each)}
                  onChange={(event) => setDraft(name, event.target.value)}
                />
              )}
            </Field>
          ),
        )
      )}
      <div className={styles.row}>
        <Button type="submit" tone="accent" busy={busy} disabled={problem !== null || hasInvalidDraft}>
          {t("chat.approveChanged")}
        </Button>
        <Button onClick={toggle} disabled={problem !== null}>
          {text === null ? t("chat.asJson") : t("chat.asFields")}
        </Button>
        <Button tone="quiet" onClick={onCancel}>
          {t("common.cancel")}
        </Button>
      </div>
    </form>
  );
}
