/** Small things that this browser remembers; where it keeps nothing, until the page is closed. */

import { useCallback, useState } from "react";

const held = new Map<string, string>();

export function recall<T>(name: string, otherwise: T): T {
  const key = `paddock.${name}`;
  try {
    const text = window.localStorage.getItem(key) ?? held.get(key);
    return text === null || text === undefined ? otherwise : (JSON.parse(text) as T);
  } catch {
    const text = held.get(key);
    return text === undefined ? otherwise : (JSON.parse(text) as T);
  }
}

export function remember(name: string, value: unknown): void {
  const key = `paddock.${name}`;
  const text = JSON.stringify(value);
  held.set(key, text);
  try {
    window.localStorage.setItem(key, text);
  } catch {
    // Storage is off or full: it is held until the page is closed.
  }
}

export function useRemembered<T>(name: string, otherwise: T): [T, (value: T) => void] {
  const [value, setValue] = useState(() => recall(name, otherwise));
  const set = useCallback(
    (next: T) => {
      remember(name, next);
      setValue(next);
    },
    [name],
  );
  return [value, set];
}
