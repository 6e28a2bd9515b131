import { LoaderCircle, type LucideIcon } from "lucide-react";
import type { ButtonHTMLAttributes, ReactNode, Ref } from "react";
import styles from "./Button.module.css";
import { Tooltip } from "./Tooltip";

interface ButtonLook {
  tone?: "plain" | "accent" | "danger" | "quiet";
  size?: "normal" | "small";
  icon?: LucideIcon;
  /** Shows a spinner and disables the button. */
  busy?: boolean;
  ref?: Ref<HTMLButtonElement>;
}

type ButtonProps = ButtonLook & ButtonHTMLAttributes<HTMLButtonElement> & { children?: ReactNode };

export function Button({
  tone = "plain",
  size = "normal",
  icon: Icon,
  busy,
  className,
  children,
  disabled,
  ...rest
}: ButtonProps) {
  const names = [styles.button, styles[tone], styles[size], className].filter(Boolean).join(" ");
  return (
    <button type="button" className={names} disabled={disabled || busy} aria-busy={busy || undefined} {...rest}>
      {busy ? (
        <LoaderCircle className={styles.turning} aria-hidden size={16} />
      ) : (
        Icon && <Icon aria-hidden size={16} />
      )}
      {children}
    </button>
  );
}

/** Icon-only button; its label is the tooltip and accessible name. */
export function IconButton({
  label,
  ...rest
}: ButtonLook & ButtonHTMLAttributes<HTMLButtonElement> & { label: string; icon: LucideIcon }) {
  return (
    <Tooltip text={label}>
      <Button
        tone="quiet"
        aria-label={label}
        {...rest}
        className={[styles.square, rest.className].filter(Boolean).join(" ")}
      />
    </Tooltip>
  );
}
