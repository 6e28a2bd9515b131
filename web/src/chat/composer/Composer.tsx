import { AssistantRuntimeProvider, ComposerPrimitive, useAui, useAuiState } from "@assistant-ui/react";
import { ArrowUp, CircleStop, Paperclip, Play, X } from "lucide-react";
import { type ReactNode, useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import type { SessionView } from "@/session/types";
import { Button, IconButton } from "@/ui/controls/Button";
import { readStoredValue, writeStoredValue } from "@/ui/hooks/browser-storage";
import { LocalFile } from "../thread/LocalFiles";
import styles from "./Composer.module.css";
import { type ComposedMessage, useChatRuntime } from "./composer-runtime";
import { useDoubleEscape } from "./useDoubleEscape";

interface Props {
  /** Storage name of the draft: a session id, or `new`. */
  draft: string;
  view: SessionView | null;
  disabled?: boolean;
  placeholder: string;
  /** Whether to focus the composer when it is mounted. */
  focusOnMount?: boolean;
  onSend: (composed: ComposedMessage) => void | Promise<void>;
  onStop?: () => void;
  onContinue?: () => void;
  /** Options shown left of the send button. */
  options?: ReactNode;
  /** Prompt to insert whenever its number changes. */
  suggestion?: PromptSuggestion;
}

export interface PromptSuggestion {
  number: number;
  text: string;
  /** Files attached with the prompt; they replace an earlier prompt's files. */
  files?: File[];
}

/** Message composer, usable at any time: messages sent while the agent works are read before its next step. */
export function Composer(props: Props) {
  const runtime = useChatRuntime({ view: props.view, disabled: props.disabled ?? false, onSend: props.onSend });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <ComposerBody {...props} />
    </AssistantRuntimeProvider>
  );
}

function ComposerBody({
  draft,
  view,
  disabled,
  placeholder,
  focusOnMount,
  onStop,
  onContinue,
  options,
  suggestion,
}: Props) {
  const { t } = useTranslation();
  const running = view?.state === "running" || view?.state === "waiting" || view?.state === "parked";
  const armed = useDoubleEscape(running && onStop ? onStop : null);
  const field = useRef<HTMLTextAreaElement>(null);
  useDraft(draft);
  const aui = useAui();
  const attachments = useRef<readonly { id: string; file?: File }[]>([]);
  attachments.current = useAuiState((state) => state.composer.attachments);
  const suggested = useRef<File[]>([]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a suggestion is inserted once, when its number changes.
  useEffect(() => {
    if (!suggestion?.number) return;
    aui.composer.setText(suggestion.text);
    field.current?.focus();
    for (const { id, file } of attachments.current)
      if (file && suggested.current.includes(file)) void aui.composer.attachment({ id }).remove();
    suggested.current = suggestion.files ?? [];
    for (const file of suggested.current) void aui.composer.addAttachment(file).catch(() => {});
  }, [suggestion?.number]);
  return (
    <ComposerPrimitive.Root className={styles.root}>
      <ComposerPrimitive.AttachmentDropzone className={styles.drop} data-hint={t("chat.dropHere")}>
        <AttachedFiles />
        <ComposerPrimitive.Input
          ref={field}
          autoFocus={focusOnMount}
          className={styles.input}
          aria-label={placeholder}
          placeholder={placeholder}
          minRows={1}
          maxRows={12}
          maxLength={1_000_000}
          cancelOnEscape={false}
          unstable_insertNewlineOnTouchEnter
        />
        <div className={styles.row}>
          <AttachButton disabled={disabled ?? false} />
          {options}
          <span className={styles.hint} role="status">
            {armed ? t("chat.escAgain") : view?.state === "running" ? t("chat.readsNext") : ""}
          </span>
          {onContinue && (
            <Button size="small" icon={Play} onClick={onContinue}>
              {t("chat.continue")}
            </Button>
          )}
          {running && onStop && (
            <Button size="small" icon={CircleStop} onClick={onStop} title={t("chat.stopHint")}>
              {t("chat.stop")}
            </Button>
          )}
          <ComposerPrimitive.Send className={styles.send} aria-label={t("chat.send")}>
            <ArrowUp size={18} aria-hidden />
          </ComposerPrimitive.Send>
        </div>
      </ComposerPrimitive.AttachmentDropzone>
    </ComposerPrimitive.Root>
  );
}

/** Files attached to the message. */
function AttachedFiles() {
  const { t } = useTranslation();
  const aui = useAui();
  const attachments = useAuiState((state) => state.composer.attachments);
  if (!attachments.length) return null;
  return (
    <ul className={styles.chosen} aria-label={t("chat.attached")}>
      {attachments.map((each) => (
        <li key={each.id}>
          {each.file && <LocalFile file={each.file} />}
          <IconButton
            size="small"
            icon={X}
            label={t("chat.removeFile", { name: each.name })}
            className={styles.remove}
            onClick={() => void aui.composer.attachment({ id: each.id }).remove()}
          />
        </li>
      ))}
    </ul>
  );
}

function AttachButton({ disabled }: { disabled: boolean }) {
  const { t } = useTranslation();
  const aui = useAui();
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        onChange={(event) => {
          // Files that are too large have already shown an error.
          for (const file of event.target.files ?? []) void aui.composer.addAttachment(file).catch(() => {});
          event.target.value = "";
        }}
      />
      <IconButton
        size="small"
        icon={Paperclip}
        label={t("chat.attach")}
        disabled={disabled}
        onClick={() => input.current?.click()}
      />
    </>
  );
}

/** Persists the draft across chats and reloads. */
function useDraft(name: string): void {
  const aui = useAui();
  const text = useAuiState((state) => state.composer.text);
  useEffect(() => {
    const storedDraft = readStoredValue(`chat.draft.${name}`, "");
    if (storedDraft) aui.composer.setText(storedDraft);
  }, [aui, name]);
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    writeStoredValue(`chat.draft.${name}`, text);
  }, [name, text]);
}
