import { List } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { IconButton } from "@/ui/Button";
import { Select, TextInput } from "@/ui/forms";
import styles from "./form.module.css";
import type { Choices } from "./useChoices";

interface Props {
  choices: Choices;
  value: string;
  onChange: (value: string | undefined) => void;
  /** Given by `Field`. */
  id?: string;
  "aria-describedby"?: string;
  "aria-invalid"?: boolean;
}

/** Not a name: names have no blanks. */
const OTHER = " other";

/** A name from a list, or any other where the list may lack some. */
export function Choose({ choices, value, onChange, ...field }: Props) {
  const { t } = useTranslation();
  const [typing, setTyping] = useState(false);
  if (typing)
    return (
      <span className={styles.typed}>
        <TextInput
          {...field}
          autoFocus
          value={value}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => onChange(event.target.value || undefined)}
        />
        <IconButton icon={List} label={t("runs.form.fromList")} onClick={() => setTyping(false)} />
      </span>
    );
  const known = choices.options.some((each) => each.value === value);
  return (
    <Select
      {...field}
      value={value}
      onChange={(chosen) => (chosen === OTHER ? setTyping(true) : onChange(chosen || undefined))}
      options={[
        {
          value: "",
          label: choices.otherwise ? t("runs.form.unsetOf", { name: choices.otherwise }) : t("runs.form.unset"),
        },
        ...(value && !known ? [{ value, label: value }] : []),
        ...choices.options,
        ...(choices.free ? [{ value: OTHER, label: t("runs.form.other") }] : []),
      ]}
    />
  );
}
