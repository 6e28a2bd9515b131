/** What a page keeps in the query of its address. */

import { useCallback, useMemo } from "react";
import { useLocation, useSearch } from "wouter";

export function useAddress() {
  const [path, navigate] = useLocation();
  const search = useSearch();
  const values = useMemo(() => new URLSearchParams(search), [search]);
  const get = useCallback((name: string) => values.get(name) ?? "", [values]);
  /** Change some; what is empty is left out. The page before stays one step back only if `push` says so. */
  const set = useCallback(
    (changes: Record<string, string>, push = false) => {
      const next = new URLSearchParams(window.location.search);
      for (const [name, value] of Object.entries(changes)) {
        if (value) next.set(name, value);
        else next.delete(name);
      }
      const text = next.toString();
      navigate(text ? `${path}?${text}` : path, { replace: !push });
    },
    [navigate, path],
  );
  return { get, set };
}
