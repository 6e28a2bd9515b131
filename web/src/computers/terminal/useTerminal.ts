/** One terminal, drawn and connected. */

import { type RefObject, useEffect, useRef, useState } from "react";
import { toast } from "@/ui/toasts";
import { TerminalLink, type TerminalState } from "./link";
import { makeScreen, type Screen, type Wishes } from "./screen";

export interface Held {
  state: TerminalState;
  /** Who else has the input, as the terminal told it when we typed. */
  heldBy: string | null;
  screen: Screen | null;
  link: RefObject<TerminalLink | null>;
  /** Its size when it is not that of our window. */
  size: { cols: number; rows: number } | null;
}

export function useTerminal(
  place: RefObject<HTMLElement | null>,
  sandbox: string,
  name: string,
  /** Grows to begin anew, after the shell has ended. */
  again: number,
  wishes: Wishes,
  onChange: () => void,
): Held {
  const [state, setState] = useState<TerminalState>({ name: "connecting", attempt: 0 });
  const [heldBy, setHeldBy] = useState<string | null>(null);
  const [screen, setScreen] = useState<Screen | null>(null);
  const [size, setSize] = useState<Held["size"]>(null);
  const link = useRef<TerminalLink | null>(null);
  const wished = useRef(wishes);
  wished.current = wishes;
  const told = useRef(onChange);
  told.current = onChange;

  // biome-ignore lint/correctness/useExhaustiveDependencies: `again` is there to begin anew.
  useEffect(() => {
    const target = place.current;
    if (!target) return;
    let over = false;
    let made: Screen | null = null;
    let opened: TerminalLink | null = null;
    let fitted: ResizeObserver | null = null;
    setState({ name: "connecting", attempt: 0 });
    setHeldBy(null);
    const hurry = () => opened?.renew();
    makeScreen(target, wished.current)
      .then((drawn) => {
        if (over) return drawn.dispose();
        made = drawn;
        const { terminal } = drawn;
        opened = new TerminalLink(sandbox, name, drawn.fit(), {
          onState: (next) => {
            setState(next);
            told.current();
          },
          onOutput: (bytes, reset) => {
            if (reset) terminal.reset();
            terminal.write(bytes);
          },
          onSize: (cols, rows) => {
            // Who typed last decides how large it is; others see it at that size.
            if (cols !== terminal.cols || rows !== terminal.rows) terminal.resize(cols, rows);
            setSize({ cols, rows });
          },
          onHeld: setHeldBy,
          onTrouble: (text) => toast(text, { tone: "danger" }),
        });
        const connected = opened;
        terminal.onData((text) => connected.type(text));
        terminal.onBinary((text) => connected.type(text));
        fitted = new ResizeObserver(() => {
          const { cols, rows } = drawn.fit();
          connected.resize(cols, rows);
        });
        fitted.observe(target);
        link.current = connected;
        setScreen(drawn);
      })
      .catch((error: unknown) => setState({ name: "refused", error }));
    window.addEventListener("online", hurry);
    return () => {
      over = true;
      window.removeEventListener("online", hurry);
      fitted?.disconnect();
      opened?.close();
      made?.dispose();
      link.current = null;
      setScreen(null);
    };
  }, [place, sandbox, name, again]);

  const { size: letters, reader } = wishes;
  useEffect(() => {
    if (!screen) return;
    screen.terminal.options.fontSize = letters;
    screen.terminal.options.screenReaderMode = reader;
    const { cols, rows } = screen.fit();
    link.current?.resize(cols, rows);
  }, [screen, letters, reader]);

  return { state, heldBy, screen, link, size };
}
