import { Switch as Base } from "@base-ui/react/switch";
import styles from "./forms.module.css";

export function Switch({
  label,
  checked,
  onChange,
  disabled,
}: {
  label: string;
  checked: boolean;
  onChange: (on: boolean) => void;
  disabled?: boolean;
}) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the switch inside is a control.
    <label className={styles.switchRow}>
      <Base.Root className={styles.switch} checked={checked} onCheckedChange={onChange} disabled={disabled}>
        <Base.Thumb className={styles.thumb} />
      </Base.Root>
      {label}
    </label>
  );
}
