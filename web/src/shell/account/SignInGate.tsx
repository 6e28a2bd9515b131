import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError, onSignedOut } from "@/api/client";
import { showToast } from "@/ui/controls/toasts";
import { ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { ErrorBoundary } from "../ErrorBoundary";
import { isOfflineError, refetchAll, watchConnection } from "../status/connection";
import { OfflineBanner } from "../status/OfflineBanner";
import { CURRENT_USER_QUERY, type CurrentUser, coversAccess, useCurrentUser } from "./current-user";
import { SignInForm } from "./SignInForm";
import styles from "./SignInGate.module.css";
import { type CredentialStorage, signInWithCode, takeSignInCode } from "./sign-in";

/** Shows the page to signed-in users, and the sign-in form to others. */
export function SignInGate({ children }: { children: ReactNode }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const me = useCurrentUser();
  const [code, setCode] = useState(takeSignInCode);
  const [codeError, setCodeError] = useState<unknown>(null);
  const used = useRef<string | null>(null);

  useEffect(() => watchConnection(queries), [queries]);

  // A 401 may come from a provider; only the server's own counts.
  useEffect(() => {
    let asking = false;
    onSignedOut(() => {
      if (asking) return;
      asking = true;
      void queries.refetchQueries({ queryKey: CURRENT_USER_QUERY }, { cancelRefetch: false }).finally(() => {
        asking = false;
      });
    });
    return () => onSignedOut(() => {});
  }, [queries]);

  const entered = useCallback(
    async (kept: CredentialStorage) => {
      await queries.refetchQueries({ queryKey: CURRENT_USER_QUERY });
      refetchAll(queries);
      if (kept === "memory") showToast(t("shell.signIn.inMemory"), { seconds: 20 });
    },
    [queries, t],
  );

  useEffect(() => {
    const look = () => setCode(takeSignInCode());
    window.addEventListener("hashchange", look);
    return () => window.removeEventListener("hashchange", look);
  }, []);

  useEffect(() => {
    if (!code || used.current === code) return;
    used.current = code;
    signInWithCode(code)
      .then(() => entered("cookie"))
      .catch(setCodeError)
      .finally(() => setCode(null));
  }, [code, entered]);

  // Signing in with another key keeps the page, unless the new user may see less.
  const [seat, setSeat] = useState<{ me: CurrentUser; number: number } | null>(null);
  if (me.data && me.data !== seat?.me) {
    const same = !seat || coversAccess(me.data, seat.me);
    setSeat({ me: me.data, number: (seat?.number ?? 0) + (same ? 0 : 1) });
  }
  const place = seat?.number ?? 0;
  useEffect(() => {
    if (place > 0) queries.removeQueries({ predicate: (query) => query.queryKey[0] !== CURRENT_USER_QUERY[0] });
  }, [place, queries]);

  // While the check is repeated the last result holds, so that the sign-in form does not vanish.
  const [refused, setRefused] = useState(false);
  const now = me.error instanceof ApiError && me.error.status === 401;
  if (now !== refused && (now || me.isSuccess)) setRefused(now);
  if (code && !me.data) return <WaitingScreen label={t("shell.signIn.under")} />;
  if (me.data === undefined && !refused) {
    if (!me.error) return <WaitingScreen label={t("common.loading")} />;
    return isOfflineError(me.error) ? (
      <main className={styles.alone}>
        <OfflineBanner alone />
      </main>
    ) : (
      <main className={styles.alone}>
        <ErrorState error={me.error} retry={() => void me.refetch()} />
      </main>
    );
  }
  return (
    <>
      {me.data && (
        <div className={styles.inside} inert={refused} key={place}>
          <ErrorBoundary>{children}</ErrorBoundary>
        </div>
      )}
      {refused &&
        (me.data ? (
          <SignInOverlay label={t("shell.signIn.againTitle")}>
            <SignInForm again first={codeError} onDone={entered} />
          </SignInOverlay>
        ) : (
          <div className={styles.inside}>
            <SignInForm again={false} first={codeError} onDone={entered} />
          </div>
        ))}
    </>
  );
}

function WaitingScreen({ label }: { label: string }) {
  return (
    <main className={styles.alone} aria-label={label}>
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
