import { List } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { IconButton } from "@/ui/controls/Button";
import { Select, TextInput } from "@/ui/controls/forms";
import styles from "./form.module.css";
import type { FieldChoices } from "./useFieldChoices";

interface Props {
  choices: FieldChoices;
  value: string;
  onChange: (value: string | undefined) => void;
  /** Set by `Field`. */
  id?: string;
  "aria-describedby"?: string;
  "aria-invalid"?: boolean;
}

/** Not a valid name: names contain no spaces. */
const OTHER_VALUE = " other";

/** Choose a name from a list, or type another one where allowed. */
export function NameChooser({ choices, value, onChange, ...field }: Props) {
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
  const isListed = choices.options.some((each) => each.value === value);
  return (
    <Select
      {...field}
      value={value}
      onChange={(chosen) => (chosen === OTHER_VALUE ? setTyping(true) : onChange(chosen || undefined))}
      options={[
        {
          value: "",
          label: choices.defaultValue ? t("runs.form.unsetOf", { name: choices.defaultValue }) : t("runs.form.unset"),
        },
        ...(value && !isListed ? [{ value, label: value }] : []),
        ...choices.options,
        ...(choices.allowsOther ? [{ value: OTHER_VALUE, label: t("runs.form.other") }] : []),
      ]}
    />
  );
}
