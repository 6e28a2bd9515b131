/** Choice stored in the URL while its view is visible. */

import { useEffect, useState } from "react";
import { useSearch } from "wouter";
import { navigate } from "wouter/use-browser-location";
import { wellFormedText } from "./files/sandbox-paths";

const PARAMETERS = ["path", "terminal"] as const;
type ParameterName = (typeof PARAMETERS)[number];

function updateUrl(change: (search: URLSearchParams) => void): void {
  const search = new URLSearchParams(window.location.search);
  const before = search.toString();
  change(search);
  const after = search.toString();
  if (after !== before) navigate(`${window.location.pathname}${after ? `?${after}` : ""}`, { replace: true });
}

/** Remove the choice of a view from the URL when the view is left. */
export function clearUrlChoice(): void {
  updateUrl((search) => {
    for (const name of PARAMETERS) search.delete(name);
  });
}

export function useUrlChoice(
  name: ParameterName,
  active: boolean,
  otherwise: string,
): [string, (value: string) => void] {
  const search = useSearch();
  const linked = active ? new URLSearchParams(search).get(name) : null;
  const [value, setValue] = useState(linked ?? otherwise);
  // A link or the back button may change it.
  const [seen, setSeen] = useState(linked);
  if (linked !== seen) {
    setSeen(linked);
    if (linked !== null && linked !== wellFormedText(value)) setValue(linked);
  }
  useEffect(() => {
    if (active)
      updateUrl((now) => {
        if (value === otherwise) now.delete(name);
        else now.set(name, value);
      });
  }, [active, value, name, otherwise]);
  return [value, setValue];
}
