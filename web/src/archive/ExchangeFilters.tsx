import { X } from "lucide-react";
import { type ReactNode, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Field, SearchBox, Select, TextInput } from "@/ui/controls/forms";
import { EXCHANGE_OUTCOMES, type ExchangeFilter, type ExchangeFilterValues } from "./api";
import styles from "./archive.module.css";

/** Filters set by links rather than typed. */
const LINK_FILTERS: ExchangeFilter[] = [
  "run",
  "session",
  "sandbox",
  "provider",
  "user",
  "key",
  "conversation",
  "status",
];

interface Props {
  filters: ExchangeFilterValues;
  onChange: (name: ExchangeFilter, value: string) => void;
}

export function ExchangeFilters({ filters, onChange }: Props) {
  const { t } = useTranslation();
  const set = [...LINK_FILTERS, "since" as const, "until" as const].filter((name) => filters[name]);
  return (
    <search className={styles.filters}>
      <DebouncedField value={filters.text ?? ""} onDone={(text) => onChange("text", text)}>
        {(value, set) => <SearchBox label={t("archive.searchText")} value={value} onChange={set} />}
      </DebouncedField>
      <DebouncedField value={filters.model ?? ""} onDone={(model) => onChange("model", model)}>
        {(value, set) => (
          <TextInput
            aria-label={t("archive.filter.model")}
            placeholder={t("archive.filter.model")}
            value={value}
            onChange={(event) => set(event.target.value)}
          />
        )}
      </DebouncedField>
      <div className={styles.choice}>
        <Select
          aria-label={t("archive.filter.outcome")}
          value={filters.outcome ?? ""}
          onChange={(outcome) => onChange("outcome", outcome)}
          options={[
            { value: "", label: t("archive.filter.anyOutcome") },
            ...EXCHANGE_OUTCOMES.map((each) => ({ value: each, label: t(`archive.outcome.${each}`) })),
          ]}
        />
      </div>
      <details className={styles.moreFilters}>
        <summary>{t("archive.moreFilters")}</summary>
        <div className={styles.filterGrid}>
          {LINK_FILTERS.map((name) => (
            <DebouncedField key={name} value={filters[name] ?? ""} onDone={(value) => onChange(name, value)}>
              {(value, type) => (
                <Field label={t(`archive.filter.${name}`)}>
                  <TextInput value={value} spellCheck={false} onChange={(event) => type(event.target.value)} />
                </Field>
              )}
            </DebouncedField>
          ))}
          {(["since", "until"] as const).map((name) => (
            <Field key={name} label={t(`archive.filter.${name}`)}>
              <TextInput
                type="datetime-local"
                value={filters[name] ?? ""}
                onChange={(event) => onChange(name, event.target.value)}
              />
            </Field>
          ))}
        </div>
      </details>
      {set.length > 0 && (
        <ul className={styles.chips} aria-label={t("archive.filters")}>
          {set.map((name) => (
            <li key={name}>
              <button type="button" className={styles.chip} onClick={() => onChange(name, "")}>
                {t(`archive.filter.${name}`)}: {filters[name]}
                <X size={14} aria-label={t("archive.clear")} />
              </button>
            </li>
          ))}
        </ul>
      )}
    </search>
  );
}

interface DebouncedFieldProps {
  value: string;
  onDone: (value: string) => void;
  children: (value: string, set: (value: string) => void) => ReactNode;
}

/** Text field that applies its value after a pause in typing, or on Enter. */
function DebouncedField({ value, onDone, children }: DebouncedFieldProps) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: only typing triggers it.
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onDone(text), 500);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <form
      className={styles.typed}
      onSubmit={(event) => {
        event.preventDefault();
        onDone(text);
      }}
    >
      {children(text, setText)}
    </form>
  );
}
