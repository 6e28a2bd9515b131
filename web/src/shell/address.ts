/** What a page keeps in the query of its address, by name. */

import { useCallback } from "react";
import { useSearchParams } from "@/ui/search";

export function useAddress() {
  const [values, change] = useSearchParams();
  const get = useCallback((name: string) => values.get(name) ?? "", [values]);
  /** Change some; what is empty is left out. The page before stays one step back only if `push` says so. */
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
