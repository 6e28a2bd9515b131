import { Plus, Trash2 } from "lucide-react";
import { type ReactNode, useId } from "react";
import { useTranslation } from "react-i18next";
import { Button, IconButton } from "@/ui/controls/Button";
import { TextInput } from "@/ui/controls/forms";
import styles from "./mcp.module.css";
import type { NamedValue } from "./server-form";

interface Props {
  title: string;
  addLabel: string;
  items: NamedValue[];
  problem: string | null;
  onChange: (items: NamedValue[]) => void;
  /** Hint below the rows. */
  children?: ReactNode;
}

/** Rows of names and values: headers or variables. */
export function NamedValueRows({ title, addLabel, items, problem, onChange, children }: Props) {
  const { t } = useTranslation();
  const about = useId();
  const change = (index: number, changes: Partial<NamedValue>) =>
    onChange(items.map((item, at) => (at === index ? { ...item, ...changes } : item)));
  return (
    <fieldset className={styles.group} aria-describedby={about}>
      <legend>{title}</legend>
      {items.map((item, index) => (
        <div key={index} className={styles.namedValue}>
          <TextInput
            className={styles.mono}
            aria-label={t("mcp.form.rowName", { title, number: index + 1 })}
            value={item.name}
            spellCheck={false}
            placeholder={t("mcp.server.name")}
            onChange={(event) => change(index, { name: event.target.value })}
          />
          <TextInput
            className={styles.mono}
            aria-label={t("mcp.form.rowValue", { title, number: index + 1 })}
            value={item.value}
            spellCheck={false}
            autoComplete="off"
            placeholder={t("mcp.form.value")}
            onChange={(event) => change(index, { value: event.target.value })}
          />
          <IconButton
            icon={Trash2}
            label={t("mcp.form.removeRow", { title, number: index + 1 })}
            onClick={() => onChange(items.filter((_, at) => at !== index))}
          />
        </div>
      ))}
      <div>
        <Button size="small" icon={Plus} onClick={() => onChange([...items, { name: "", value: "" }])}>
          {addLabel}
        </Button>
      </div>
      <p id={about} className={problem ? styles.wrong : styles.soft}>
        {problem ?? children}
      </p>
    </fieldset>
  );
}
