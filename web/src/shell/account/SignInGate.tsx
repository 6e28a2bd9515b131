import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError, setSignedOutListener } from "@/api/client";
import { showToast } from "@/ui/controls/toasts";
import { ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { ErrorBoundary } from "../ErrorBoundary";
import { OfflineBanner } from "../status/OfflineBanner";
import { isOfflineError, refetchAllQueries, watchServerConnection } from "../status/server-connection";
import { CURRENT_USER_QUERY, type CurrentUser, coversAccess, useCurrentUser } from "./current-user";
import { SignInForm } from "./SignInForm";
import styles from "./SignInGate.module.css";
import { type CredentialStorage, consumeSignInCode, signInWithCode } from "./sign-in";

/** Shows the page to signed-in users, and the sign-in form to others. */
export function SignInGate({ children }: { children: ReactNode }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const me = useCurrentUser();
  const [code, setCode] = useState(consumeSignInCode);
  const [codeError, setCodeError] = useState<unknown>(null);
  const usedCode = useRef<string | null>(null);

  useEffect(() => watchServerConnection(queries), [queries]);

  // A 401 may come from a provider; only the server's own counts.
  useEffect(() => {
    let isRefetching = false;
    setSignedOutListener(() => {
      if (isRefetching) return;
      isRefetching = true;
      void queries.refetchQueries({ queryKey: CURRENT_USER_QUERY }, { cancelRefetch: false }).finally(() => {
        isRefetching = false;
      });
    });
    return () => setSignedOutListener(() => {});
  }, [queries]);

  const refreshAfterSignIn = useCallback(
    async (storage: CredentialStorage) => {
      await queries.refetchQueries({ queryKey: CURRENT_USER_QUERY });
      refetchAllQueries(queries);
      if (storage === "memory") showToast(t("shell.signIn.inMemory"), { seconds: 20 });
    },
    [queries, t],
  );

  useEffect(() => {
    const readCode = () => setCode(consumeSignInCode());
    window.addEventListener("hashchange", readCode);
    return () => window.removeEventListener("hashchange", readCode);
  }, []);

  useEffect(() => {
    if (!code || usedCode.current === code) return;
    usedCode.current = code;
    signInWithCode(code)
      .then(() => refreshAfterSignIn("cookie"))
      .catch(setCodeError)
      .finally(() => setCode(null));
  }, [code, refreshAfterSignIn]);

  // Signing in with another key keeps the page, unless the new user may see less.
  const [access, setAccess] = useState<{ me: CurrentUser; number: number } | null>(null);
  if (me.data && me.data !== access?.me) {
    const same = !access || coversAccess(me.data, access.me);
    setAccess({ me: me.data, number: (access?.number ?? 0) + (same ? 0 : 1) });
  }
  const accessNumber = access?.number ?? 0;
  useEffect(() => {
    if (accessNumber > 0) queries.removeQueries({ predicate: (query) => query.queryKey[0] !== CURRENT_USER_QUERY[0] });
  }, [accessNumber, queries]);

  // While the check is repeated the last result holds, so that the sign-in form does not vanish.
  const [refused, setRefused] = useState(false);
  const isRefused = me.error instanceof ApiError && me.error.status === 401;
  if (isRefused !== refused && (isRefused || me.isSuccess)) setRefused(isRefused);
  if (code && !me.data) return <WaitingScreen label={t("shell.signIn.under")} />;
  if (me.data === undefined && !refused) {
    if (!me.error) return <WaitingScreen label={t("common.loading")} />;
    return isOfflineError(me.error) ? (
      <main className={styles.fullPage}>
        <OfflineBanner fullPage />
      </main>
    ) : (
      <main className={styles.fullPage}>
        <ErrorState error={me.error} retry={() => void me.refetch()} />
      </main>
    );
  }
  return (
    <>
      {me.data && (
        <div className={styles.inside} inert={refused} key={accessNumber}>
          <ErrorBoundary>{children}</ErrorBoundary>
        </div>
      )}
      {refused &&
        (me.data ? (
          <SignInOverlay label={t("shell.signIn.againTitle")}>
            <SignInForm isRepeated first={codeError} onDone={refreshAfterSignIn} />
          </SignInOverlay>
        ) : (
          <div className={styles.inside}>
            <SignInForm isRepeated={false} first={codeError} onDone={refreshAfterSignIn} />
          </div>
        ))}
    </>
  );
}

function WaitingScreen({ label }: { label: string }) {
  return (
    <main className={styles.fullPage} aria-label={label}>
      <LoadingBars rows={3} />
    </main>
  );
}

/** Overlay above everything, including open dialogs, so that nothing else takes the keys. It cannot be closed. */
function SignInOverlay({ label, children }: { label: string; children: ReactNode }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  return (
    <dialog ref={element} className={styles.over} aria-label={label} onCancel={(event) => event.preventDefault()}>
      {children}
    </dialog>
  );
}
