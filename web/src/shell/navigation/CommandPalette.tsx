import { Dialog } from "@base-ui/react/dialog";
import { type KeyboardEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { KeyCap } from "@/ui/controls/Badge";
import styles from "./CommandPalette.module.css";
import { bestFuzzyMatches } from "./fuzzy-search";
import { usePaletteCommands } from "./palette-commands";

interface Props {
  open: boolean;
  onClose: () => void;
  onShortcuts: () => void;
}

/** Search for pages and actions by typing. */
export function CommandPalette({ open, onClose, onShortcuts }: Props) {
  const { t } = useTranslation();
  return (
    <Dialog.Root open={open} onOpenChange={(isOpen) => !isOpen && onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className={styles.backdrop} />
        <Dialog.Popup className={styles.palette}>
          <Dialog.Title className="visually-hidden">{t("shell.palette.title")}</Dialog.Title>
          {open && <PaletteSearch onClose={onClose} onShortcuts={onShortcuts} />}
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

function PaletteSearch({ onClose, onShortcuts }: Omit<Props, "open">) {
  const { t } = useTranslation();
  const id = useId();
  const [typed, setTyped] = useState("");
  const [selectedIndex, setSelectedIndex] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const commands = usePaletteCommands(onShortcuts);
  const found = useMemo(
    () => bestFuzzyMatches(typed, commands, (command) => `${command.label} ${command.searchText ?? ""}`),
    [typed, commands],
  );
  const chosen = Math.min(selectedIndex, Math.max(0, found.length - 1));

  useEffect(() => {
    list.current?.querySelector(`[data-index="${chosen}"]`)?.scrollIntoView({ block: "nearest" });
  }, [chosen]);

  const run = (index: number) => {
    const command = found[index];
    if (!command) return;
    onClose();
    command.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    const last = found.length - 1;
    const next: Record<string, number> = {
      ArrowDown: chosen >= last ? 0 : chosen + 1,
      ArrowUp: chosen <= 0 ? last : chosen - 1,
      PageDown: Math.min(last, chosen + 8),
      PageUp: Math.max(0, chosen - 8),
    };
    const to = next[event.key];
    if (to !== undefined) {
      event.preventDefault();
      setSelectedIndex(Math.max(0, to));
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(chosen);
    }
  };

  return (
    <>
      <input
        className={styles.input}
        role="combobox"
        aria-expanded
        aria-controls={`${id}-list`}
        aria-activedescendant={found.length ? `${id}-${chosen}` : undefined}
        aria-autocomplete="list"
        aria-label={t("shell.palette.title")}
        placeholder={t("shell.palette.placeholder")}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
          setSelectedIndex(0);
        }}
        onKeyDown={onKeyDown}
      />
      <div className={styles.list} id={`${id}-list`} role="listbox" aria-label={t("shell.palette.title")} ref={list}>
        {found.map(({ id: name, label, icon: Icon, group, hint }, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the field has the focus and handles the keys.
          <div
            key={name}
            id={`${id}-${index}`}
            data-index={index}
            role="option"
            tabIndex={-1}
            aria-selected={index === chosen}
            className={styles.option}
            onMouseMove={() => setSelectedIndex(index)}
            onClick={() => run(index)}
          >
            <Icon size={16} aria-hidden />
            <bdi className={styles.label}>{label}</bdi>
            {hint && <bdi className={styles.hint}>{hint}</bdi>}
            <span className={styles.group}>{group}</span>
          </div>
        ))}
      </div>
      {found.length === 0 && (
        <p className={styles.nothing} role="status">
          {t("shell.palette.nothing")}
        </p>
      )}
      <p className={styles.foot}>
        <span>
          <KeyCap>↑</KeyCap> <KeyCap>↓</KeyCap> {t("shell.palette.move")}
        </span>
        <span>
          <KeyCap>↵</KeyCap> {t("shell.palette.choose")}
        </span>
        <span>
          <KeyCap>Esc</KeyCap> {t("shell.palette.leave")}
        </span>
      </p>
    </>
  );
}
