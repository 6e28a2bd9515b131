/** Values stored in this browser; without storage, until the page is closed. */

import { useCallback, useState } from "react";

const memoryValues = new Map<string, string>();

export function readStoredValue<T>(name: string, defaultValue: T): T {
  const key = `paddock.${name}`;
  try {
    const text = window.localStorage.getItem(key) ?? memoryValues.get(key);
    return text === null || text === undefined ? defaultValue : (JSON.parse(text) as T);
  } catch {
    const text = memoryValues.get(key);
    return text === undefined ? defaultValue : (JSON.parse(text) as T);
  }
}

export function writeStoredValue(name: string, value: unknown): void {
  const key = `paddock.${name}`;
  const text = JSON.stringify(value);
  memoryValues.set(key, text);
  try {
    window.localStorage.setItem(key, text);
  } catch {
    // Storage is disabled or full: keep the value until the page is closed.
  }
}

export function useStoredState<T>(name: string, defaultValue: T): [T, (value: T) => void] {
  const [value, setValue] = useState(() => readStoredValue(name, defaultValue));
  const set = useCallback(
    (next: T) => {
      writeStoredValue(name, next);
      setValue(next);
    },
    [name],
  );
  return [value, set];
}
