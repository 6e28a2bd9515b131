import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/Button";
import { Field, Select, TextInput } from "@/ui/forms";
import { fitsPattern } from "./patterns";
import type { ModelFacts } from "./server";

/** No model has this name, as it has a blank. */
const OTHER = "other name";

interface Props {
  value: string;
  models: readonly ModelFacts[];
  /** Names that fit one of these can be typed. */
  patterns: readonly string[];
  onChange: (model: string) => void;
}

/** Chooses a model from the list, or by a typed name that fits a pattern of the server's. */
export function ModelField({ value, models, patterns, onChange }: Props) {
  const { t } = useTranslation();
  const [typed, setTyped] = useState<string | null>(models.length === 0 && patterns.length > 0 ? value : null);
  const examples = patterns.join(", ");
  if (typed !== null)
    return (
      <>
        <Field
          label={t("chat.model")}
          hint={t("chat.modelFits", { patterns: examples })}
          error={typed && !fitsPattern(typed, patterns) ? t("chat.modelFitsNot", { patterns: examples }) : null}
        >
          <TextInput
            value={typed}
            spellCheck={false}
            autoFocus={models.length > 0}
            onChange={(event) => {
              const name = event.target.value.trim();
              setTyped(name);
              if (fitsPattern(name, patterns)) onChange(name);
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
  const known = models.map((each) => ({
    value: each.name,
    label: each.script ? t("chat.scripted", { name: each.name }) : each.name,
  }));
  if (value && !models.some((each) => each.name === value)) known.unshift({ value, label: value });
  if (patterns.length > 0) known.push({ value: OTHER, label: t("chat.modelOther") });
  return (
    <Field label={t("chat.model")}>
      <Select value={value} options={known} onChange={(name) => (name === OTHER ? setTyped(value) : onChange(name))} />
    </Field>
  );
}
