import {
  cloneElement,
  type InputHTMLAttributes,
  type ReactElement,
  type ReactNode,
  type SelectHTMLAttributes,
  type TextareaHTMLAttributes,
  useId,
} from "react";
import styles from "./forms.module.css";

interface FieldProps {
  label: string;
  hint?: ReactNode;
  error?: string | null;
  /** One input, which receives its id and description. */
  children: ReactElement<Record<string, unknown>>;
}

/** A labelled field with hint and error. */
export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId();
  const about = `${id}-about`;
  const input = cloneElement(children, {
    id,
    "aria-describedby": hint || error ? about : undefined,
    "aria-invalid": error ? true : undefined,
  });
  return (
    <div className={styles.field}>
      <label htmlFor={id}>{label}</label>
      {input}
      {(hint || error) && (
        <div id={about} className={error ? styles.error : styles.hint}>
          {error || hint}
        </div>
      )}
    </div>
  );
}

export function TextInput(props: InputHTMLAttributes<HTMLInputElement>) {
  return <input type="text" {...props} className={[styles.input, props.className].filter(Boolean).join(" ")} />;
}

export function TextArea(props: TextareaHTMLAttributes<HTMLTextAreaElement>) {
  return (
    <textarea rows={4} {...props} className={[styles.input, styles.area, props.className].filter(Boolean).join(" ")} />
  );
}

interface SelectProps extends Omit<SelectHTMLAttributes<HTMLSelectElement>, "onChange"> {
  options: { value: string; label: string }[];
  onChange: (value: string) => void;
}

export function Select({ options, onChange, ...rest }: SelectProps) {
  return (
    <select {...rest} className={styles.input} onChange={(event) => onChange(event.target.value)}>
      {options.map(({ value, label }) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  );
}

/** Search field that filters while typing. */
export function SearchBox({
  label,
  value,
  onChange,
}: {
  label: string;
  value: string;
  onChange: (text: string) => void;
}) {
  return (
    <input
      type="search"
      className={`${styles.input} ${styles.search}`}
      aria-label={label}
      placeholder={label}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}
