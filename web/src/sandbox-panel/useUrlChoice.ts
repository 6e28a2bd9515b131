/** Choice stored in the URL while its view is visible. */

import { useEffect, useState } from "react";
import { useSearch } from "wouter";
import { navigate } from "wouter/use-browser-location";
import { wellFormedText } from "./files/sandbox-paths";

const PARAMETERS = ["path", "terminal", "port"] as const;
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

/** Choose for a view that is shown already. */
export function setUrlChoice(name: ParameterName, value: string): void {
  updateUrl((search) => search.set(name, value));
}

export function useUrlChoice(
  name: ParameterName,
  active: boolean,
  defaultValue: string,
): [string, (value: string) => void] {
  const search = useSearch();
  const urlValue = active ? new URLSearchParams(search).get(name) : null;
  const [value, setValue] = useState(urlValue ?? defaultValue);
  // A link or the back button may change it.
  const [previousUrlValue, setPreviousUrlValue] = useState(urlValue);
  if (urlValue !== previousUrlValue) {
    setPreviousUrlValue(urlValue);
    if (urlValue !== null && urlValue !== wellFormedText(value)) setValue(urlValue);
  }
  useEffect(() => {
    if (active)
      updateUrl((params) => {
        if (value === defaultValue) params.delete(name);
        else params.set(name, value);
      });
  }, [active, value, name, defaultValue]);
  return [value, setValue];
}
