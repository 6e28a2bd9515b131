/** A connected terminal on the page. */

import { type RefObject, useEffect, useRef, useState } from "react";
import { showToast } from "@/ui/controls/toasts";
import { serverText } from "@/ui/format/server-text";
import { TerminalConnection, type TerminalState } from "./terminal-connection";
import { createTerminalScreen, type TerminalOptions, type TerminalScreenHandle } from "./xterm-screen";

export interface TerminalHandle {
  state: TerminalState;
  /** Holder of control, reported when input was refused. */
  heldBy: string | null;
  screen: TerminalScreenHandle | null;
  link: RefObject<TerminalConnection | null>;
  /** Terminal size if it differs from this window's. */
  size: { cols: number; rows: number } | null;
}

export function useTerminal(
  place: RefObject<HTMLElement | null>,
  sandbox: string,
  name: string,
  /** Incremented to start again after the shell has ended. */
  again: number,
  wishes: TerminalOptions,
  onChange: () => void,
): TerminalHandle {
  const [state, setState] = useState<TerminalState>({ name: "connecting", attempt: 0 });
  const [heldBy, setHeldBy] = useState<string | null>(null);
  const [screen, setScreen] = useState<TerminalScreenHandle | null>(null);
  const [size, setSize] = useState<TerminalHandle["size"]>(null);
  const link = useRef<TerminalConnection | null>(null);
  const wished = useRef(wishes);
  wished.current = wishes;
  const told = useRef(onChange);
  told.current = onChange;

  // biome-ignore lint/correctness/useExhaustiveDependencies: `again` restarts the shell.
  useEffect(() => {
    const target = place.current;
    if (!target) return;
    let over = false;
    let made: TerminalScreenHandle | null = null;
    let opened: TerminalConnection | null = null;
    let fitted: ResizeObserver | null = null;
    setState({ name: "connecting", attempt: 0 });
    setHeldBy(null);
    const hurry = () => opened?.renew();
    createTerminalScreen(target, wished.current)
      .then((drawn) => {
        if (over) return drawn.dispose();
        made = drawn;
        const { terminal } = drawn;
        opened = new TerminalConnection(sandbox, name, drawn.fit(), {
          onState: (next) => {
            setState(next);
            told.current();
          },
          onOutput: (bytes, reset) => {
            if (reset) terminal.reset();
            terminal.write(bytes);
          },
          onSize: (cols, rows) => {
            // The last typist's window sets the size; others see it at that size.
            if (cols !== terminal.cols || rows !== terminal.rows) terminal.resize(cols, rows);
            setSize({ cols, rows });
          },
          onHeld: setHeldBy,
          onTrouble: (text) => showToast(serverText(text), { tone: "danger" }),
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
