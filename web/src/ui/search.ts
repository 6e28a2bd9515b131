/** What a page keeps in the query of its address. */

import { useCallback, useMemo } from "react";
import { useLocation, useSearch } from "wouter";

type Change = Record<string, string> | ((now: URLSearchParams) => URLSearchParams);

/** As wouter's own, but for values with a percent sign in them, which that decodes twice. */
export function useSearchParams(): [URLSearchParams, (change: Change, options?: { replace?: boolean }) => void] {
  const [, navigate] = useLocation();
  // Only tells that it has changed.
  useSearch();
  const text = window.location.search;
  const values = useMemo(() => new URLSearchParams(text), [text]);
  const set = useCallback(
    (change: Change, options?: { replace?: boolean }) => {
      const now = new URLSearchParams(window.location.search);
      const next = (typeof change === "function" ? change(now) : new URLSearchParams(change)).toString();
      navigate(next ? `${window.location.pathname}?${next}` : window.location.pathname, options);
    },
    [navigate],
  );
  return [values, set];
}
