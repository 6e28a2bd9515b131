/** A choice that the address of the page names while its view is the one that is seen. */

import { useEffect, useState } from "react";
import { useSearch } from "wouter";
import { navigate } from "wouter/use-browser-location";
import { wellFormed } from "./files/paths";

const NAMES = ["path", "terminal"] as const;
type Name = (typeof NAMES)[number];

function link(change: (search: URLSearchParams) => void): void {
  const search = new URLSearchParams(window.location.search);
  const before = search.toString();
  change(search);
  const after = search.toString();
  if (after !== before) navigate(`${window.location.pathname}${after ? `?${after}` : ""}`, { replace: true });
}

/** Forget what the address names of the view that is left. */
export function unlink(): void {
  link((search) => {
    for (const name of NAMES) search.delete(name);
  });
}

export function useLinked(name: Name, active: boolean, otherwise: string): [string, (value: string) => void] {
  const search = useSearch();
  const linked = active ? new URLSearchParams(search).get(name) : null;
  const [value, setValue] = useState(linked ?? otherwise);
  // A link within the page, or the button back, names another one.
  const [seen, setSeen] = useState(linked);
  if (linked !== seen) {
    setSeen(linked);
    if (linked !== null && linked !== wellFormed(value)) setValue(linked);
  }
  useEffect(() => {
    if (active)
      link((now) => {
        if (value === otherwise) now.delete(name);
        else now.set(name, value);
      });
  }, [active, value, name, otherwise]);
  return [value, setValue];
}
