import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError, onSignedOut } from "@/api/client";
import { Failed, Loading } from "@/ui/states";
import { toast } from "@/ui/toasts";
import { Away } from "./Away";
import { meansAway, resume, watchConnection } from "./connection";
import { ErrorBoundary } from "./ErrorBoundary";
import styles from "./Gate.module.css";
import { covers, ME, type Me, useMe } from "./me";
import { SignIn } from "./SignIn";
import { type Kept, signInWithCode, takeCode } from "./signing";

/** Lets in who is signed in, and shows everybody else where to do that. */
export function Gate({ children }: { children: ReactNode }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const me = useMe();
  const [code, setCode] = useState(takeCode);
  const [codeError, setCodeError] = useState<unknown>(null);
  const used = useRef<string | null>(null);

  useEffect(() => watchConnection(queries), [queries]);

  // A refusal may also be some provider's, passed on: only what the server says of us counts.
  useEffect(() => {
    let asking = false;
    onSignedOut(() => {
      if (asking) return;
      asking = true;
      void queries.refetchQueries({ queryKey: ME }, { cancelRefetch: false }).finally(() => {
        asking = false;
      });
    });
    return () => onSignedOut(() => {});
  }, [queries]);

  const entered = useCallback(
    async (kept: Kept) => {
      await queries.refetchQueries({ queryKey: ME });
      resume(queries);
      if (kept === "memory") toast(t("shell.signIn.inMemory"), { seconds: 20 });
    },
    [queries, t],
  );

  useEffect(() => {
    const look = () => setCode(takeCode());
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

  // Who signs in again with another key goes on where they were, unless it is somebody who may see less.
  const [seat, setSeat] = useState<{ me: Me; number: number } | null>(null);
  if (me.data && me.data !== seat?.me) {
    const same = !seat || covers(me.data, seat.me);
    setSeat({ me: me.data, number: (seat?.number ?? 0) + (same ? 0 : 1) });
  }
  const place = seat?.number ?? 0;
  useEffect(() => {
    if (place > 0) queries.removeQueries({ predicate: (query) => query.queryKey[0] !== ME[0] });
  }, [place, queries]);

  // While it is asked again, what was said last holds: the page to sign in must not go away under somebody's hands.
  const [refused, setRefused] = useState(false);
  const now = me.error instanceof ApiError && me.error.status === 401;
  if (now !== refused && (now || me.isSuccess)) setRefused(now);
  if (code && !me.data) return <Waiting label={t("shell.signIn.under")} />;
  if (me.data === undefined && !refused) {
    if (!me.error) return <Waiting label={t("common.loading")} />;
    return meansAway(me.error) ? (
      <main className={styles.alone}>
        <Away alone />
      </main>
    ) : (
      <main className={styles.alone}>
        <Failed error={me.error} retry={() => void me.refetch()} />
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
          <Over label={t("shell.signIn.againTitle")}>
            <SignIn again first={codeError} onDone={entered} />
          </Over>
        ) : (
          <div className={styles.inside}>
            <SignIn again={false} first={codeError} onDone={entered} />
          </div>
        ))}
    </>
  );
}

function Waiting({ label }: { label: string }) {
  return (
    <main className={styles.alone} aria-label={label}>
      <Loading rows={3} />
    </main>
  );
}

/** Above everything, also above dialogs that are open, so that nothing else takes the keys. It cannot be closed. */
function Over({ label, children }: { label: string; children: ReactNode }) {
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
