import { X } from "lucide-react";
import { type ReactNode, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Field, SearchBox, Select, TextInput } from "@/ui/forms";
import styles from "./archive.module.css";
import { type Filter, type Filters, OUTCOMES } from "./asking";

/** Filters that are seldom typed, and come with links instead. */
const LINKED: Filter[] = ["run", "session", "sandbox", "provider", "user", "key", "conversation", "status"];

interface Props {
  filters: Filters;
  onChange: (name: Filter, value: string) => void;
}

export function FilterBar({ filters, onChange }: Props) {
  const { t } = useTranslation();
  const set = [...LINKED, "since" as const, "until" as const].filter((name) => filters[name]);
  return (
    <search className={styles.filters}>
      <Typed value={filters.text ?? ""} onDone={(text) => onChange("text", text)}>
        {(value, set) => <SearchBox label={t("archive.searchText")} value={value} onChange={set} />}
      </Typed>
      <Typed value={filters.model ?? ""} onDone={(model) => onChange("model", model)}>
        {(value, set) => (
          <TextInput
            aria-label={t("archive.filter.model")}
            placeholder={t("archive.filter.model")}
            value={value}
            onChange={(event) => set(event.target.value)}
          />
        )}
      </Typed>
      <div className={styles.choice}>
        <Select
          aria-label={t("archive.filter.outcome")}
          value={filters.outcome ?? ""}
          onChange={(outcome) => onChange("outcome", outcome)}
          options={[
            { value: "", label: t("archive.filter.anyOutcome") },
            ...OUTCOMES.map((each) => ({ value: each, label: t(`archive.outcome.${each}`) })),
          ]}
        />
      </div>
      <details className={styles.moreFilters}>
        <summary>{t("archive.moreFilters")}</summary>
        <div className={styles.filterGrid}>
          {LINKED.map((name) => (
            <Typed key={name} value={filters[name] ?? ""} onDone={(value) => onChange(name, value)}>
              {(value, type) => (
                <Field label={t(`archive.filter.${name}`)}>
                  <TextInput value={value} spellCheck={false} onChange={(event) => type(event.target.value)} />
                </Field>
              )}
            </Typed>
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

interface TypedProps {
  value: string;
  onDone: (value: string) => void;
  children: (value: string, set: (value: string) => void) => ReactNode;
}

/** Something that counts once nobody has typed for a moment, or when Enter is pressed. */
function Typed({ value, onDone, children }: TypedProps) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: only what is typed sets it going.
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
