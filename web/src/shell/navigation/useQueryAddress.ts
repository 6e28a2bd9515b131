/** Query parameters of the page's URL. */

import { useCallback } from "react";
import { useSearchParams } from "@/ui/hooks/useSearchParams";

export function useQueryAddress() {
  const [values, change] = useSearchParams();
  const get = useCallback((name: string) => values.get(name) ?? "", [values]);
  /** Change parameters; empty ones are removed. Adds a history entry only with `push`. */
  const set = useCallback(
    (changes: Record<string, string>, push = false) =>
      change(
        (now) => {
          for (const [name, value] of Object.entries(changes)) {
            if (value) now.set(name, value);
            else now.delete(name);
          }
          return now;
        },
        { replace: !push },
      ),
    [change],
  );
  return { get, set };
}
