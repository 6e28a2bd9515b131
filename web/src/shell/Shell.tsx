import type { ReactNode } from "react";

/** What is around every page. */
export function Shell({ children }: { children: ReactNode }) {
  return <main>{children}</main>;
}
