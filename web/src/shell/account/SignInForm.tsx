import { Eye, EyeOff, LogIn } from "lucide-react";
import { type FormEvent, useEffect, useId, useRef, useState } from "react";
import { Trans, useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import { chooseLanguage, LANGUAGES, type Language } from "@/i18n";
import { Button, IconButton } from "@/ui/controls/Button";
import forms from "@/ui/controls/forms.module.css";
import { errorText } from "@/ui/format/error-text";
import { usePageTitle } from "@/ui/layout/Page";
import { isOfflineError } from "../status/server-connection";
import styles from "./SignInGate.module.css";
import { CookiesDisabledError, type CredentialStorage, signInWithKey } from "./sign-in";

interface Props {
  /** The session expired; the page behind is still mounted. */
  isRepeated: boolean;
  /** Error of a sign-in link. */
  first: unknown;
  onDone: (storage: CredentialStorage) => Promise<void>;
}

/** Exchanges an API key for a cookie. */
export function SignInForm({ isRepeated, first, onDone }: Props) {
  const { t, i18n } = useTranslation();
  const [key, setKey] = useState("");
  const [shown, setShown] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const field = useRef<HTMLDivElement>(null);
  const id = useId();
  usePageTitle(t("shell.signIn.title"));
  useEffect(() => field.current?.querySelector("input")?.focus(), []);

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const trimmed = key.trim();
    if (!trimmed || busy) return;
    setBusy(true);
    setError(null);
    try {
      await onDone(await signInWithKey(trimmed));
    } catch (problem) {
      setError(problem);
      field.current?.querySelector("input")?.select();
    } finally {
      setBusy(false);
    }
  };

  const problem = error ? keyErrorText(error) : first ? codeErrorText(first) : null;
  const other = (Object.keys(LANGUAGES) as Language[]).find((each) => each !== i18n.language) ?? "en";
  return (
    <main className={styles.page}>
      <form className={styles.card} onSubmit={(event) => void submit(event)}>
        <div className={styles.brand}>
          <img src="/icon.svg" alt="" />
          <div>
            <h1>{t(isRepeated ? "shell.signIn.againTitle" : "shell.signIn.title")}</h1>
          </div>
        </div>
        <p>{t(isRepeated ? "shell.signIn.againAbout" : "shell.signIn.about")}</p>
        <div>
          <label htmlFor={id}>{t("shell.signIn.key")}</label>
          <div className={styles.secret} ref={field}>
            <input
              className={forms.input}
              id={id}
              type={shown ? "text" : "password"}
              value={key}
              onChange={(event) => setKey(event.target.value)}
              autoComplete="current-password"
              autoCapitalize="off"
              spellCheck={false}
              placeholder="pdk_…"
              aria-invalid={error ? true : undefined}
              aria-describedby={problem ? `${id}-problem` : undefined}
            />
            <IconButton
              icon={shown ? EyeOff : Eye}
              label={t(shown ? "shell.signIn.hide" : "shell.signIn.show")}
              aria-pressed={shown}
              onClick={() => setShown(!shown)}
            />
          </div>
        </div>
        {problem !== null && (
          <p id={`${id}-problem`} className={styles.problem} role="alert">
            {typeof problem === "string" ? problem : t(problem.key)}
          </p>
        )}
        <Button tone="accent" type="submit" icon={LogIn} busy={busy} disabled={!key.trim()}>
          {t("shell.signIn.go")}
        </Button>
        <div className={styles.help}>
          <p>{t("shell.signIn.where")}</p>
          <ul>
            <li>
              <Trans i18nKey="shell.signIn.console" components={{ c: <code /> }} />
            </li>
            <li>
              <Trans i18nKey="shell.signIn.file" components={{ c: <code /> }} />
            </li>
            <li>{t("shell.signIn.ask")}</li>
          </ul>
        </div>
        <div className={styles.languages}>
          <Button tone="quiet" size="small" lang={other} onClick={() => void chooseLanguage(other)}>
            {LANGUAGES[other]}
          </Button>
        </div>
      </form>
    </main>
  );
}

type ErrorText = { key: string } | string;

function keyErrorText(error: unknown): ErrorText {
  if (isOfflineError(error)) return { key: "errors.noServer" };
  if (error instanceof ApiError && error.status === 401) return { key: "shell.signIn.wrong" };
  return errorText(error);
}

function codeErrorText(error: unknown): ErrorText {
  if (error instanceof CookiesDisabledError) return { key: "shell.signIn.noCookies" };
  if (error instanceof ApiError && error.status === 401) return { key: "shell.signIn.oldLink" };
  return keyErrorText(error);
}
