import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/controls/Button";
import { Field, Select, TextInput } from "@/ui/controls/forms";
import type { ModelFacts } from "../status/server-facts";
import { acceptsAnyModelName, matchesModelPattern } from "./model-patterns";

/** No model has this name, because it contains a space. */
const OTHER = "other name";

interface Props {
  value: string;
  models: readonly ModelFacts[];
  /** Names that match one of these patterns can be typed. */
  patterns: readonly string[];
  onChange: (model: string) => void;
}

/** Choose a model from the list, or type a name that matches a pattern. */
export function ModelField({ value, models, patterns, onChange }: Props) {
  const { t } = useTranslation();
  const [typed, setTyped] = useState<string | null>(models.length === 0 && patterns.length > 0 ? value : null);
  const any = acceptsAnyModelName(patterns);
  const examples = patterns.join(", ");
  const refusal = any ? t("chat.modelNoName") : t("chat.modelFitsNot", { patterns: examples });
  if (typed !== null)
    return (
      <>
        <Field
          label={t("chat.model")}
          hint={any ? t("chat.modelAny") : t("chat.modelFits", { patterns: examples })}
          error={typed && !matchesModelPattern(typed, patterns) ? refusal : null}
        >
          <TextInput
            value={typed}
            spellCheck={false}
            autoFocus={models.length > 0}
            onChange={(event) => {
              const name = event.target.value.trim();
              setTyped(name);
              if (matchesModelPattern(name, patterns)) onChange(name);
            }}
          />
        </Field>
        {models.length > 0 && (
          <div>
            <Button size="small" onClick={() => setTyped(null)}>
              {t("chat.modelFromList")}
            </Button>
          </div>
        )}
      </>
    );
  const options = models.map((each) => ({
    value: each.name,
    label: each.script ? t("chat.scripted", { name: each.name }) : each.name,
  }));
  if (value && !models.some((each) => each.name === value)) options.unshift({ value, label: value });
  if (patterns.length > 0) options.push({ value: OTHER, label: t("chat.modelOther") });
  return (
    <Field label={t("chat.model")}>
      <Select
        value={value}
        options={options}
        onChange={(name) => (name === OTHER ? setTyped(value) : onChange(name))}
      />
    </Field>
  );
}
