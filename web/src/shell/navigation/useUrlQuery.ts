/** Query parameters of the page's URL. */

import { useCallback } from "react";
import { useSearchParams } from "@/ui/hooks/useSearchParams";

export function useUrlQuery() {
  const [values, change] = useSearchParams();
  const get = useCallback((name: string) => values.get(name) ?? "", [values]);
  /** Change parameters; empty ones are removed. Adds a history entry only with `push`. */
  const set = useCallback(
    (changes: Record<string, string>, push = false) =>
      change(
        (params) => {
          for (const [name, value] of Object.entries(changes)) {
            if (value) params.set(name, value);
            else params.delete(name);
          }
          return params;
        },
        { replace: !push },
      ),
    [change],
  );
  return { get, set };
}
