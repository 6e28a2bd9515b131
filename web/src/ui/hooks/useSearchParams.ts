/** Query parameters of the page's URL. */

import { useCallback, useMemo } from "react";
import { useLocation, useSearch } from "wouter";

type Change = Record<string, string> | ((params: URLSearchParams) => URLSearchParams);

/** Like wouter's hook, which decodes percent signs in values twice. */
export function useSearchParams(): [URLSearchParams, (change: Change, options?: { replace?: boolean }) => void] {
  const [, navigate] = useLocation();
  // Subscribes to changes.
  useSearch();
  const text = window.location.search;
  const values = useMemo(() => new URLSearchParams(text), [text]);
  const set = useCallback(
    (change: Change, options?: { replace?: boolean }) => {
      const params = new URLSearchParams(window.location.search);
      const next = (typeof change === "function" ? change(params) : new URLSearchParams(change)).toString();
      navigate(next ? `${window.location.pathname}?${next}` : window.location.pathname, options);
    },
    [navigate],
  );
  return [values, set];
}
