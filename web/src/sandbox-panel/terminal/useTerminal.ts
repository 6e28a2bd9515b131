/** A connected terminal on the page. */

import { type RefObject, useEffect, useRef, useState } from "react";
import { showToast } from "@/ui/controls/toasts";
import { translateServerText } from "@/ui/format/server-text";
import { TerminalConnection, type TerminalState } from "./terminal-connection";
import { createTerminalScreen, type TerminalScreenHandle, type TerminalScreenOptions } from "./xterm-screen";

export interface TerminalHandle {
  state: TerminalState;
  /** Holder of control, reported when input was refused. */
  inputHeldBy: string | null;
  screen: TerminalScreenHandle | null;
  connection: RefObject<TerminalConnection | null>;
  /** Terminal size if it differs from this window's. */
  size: { cols: number; rows: number } | null;
}

export function useTerminal(
  container: RefObject<HTMLElement | null>,
  sandbox: string,
  name: string,
  /** Incremented to start again after the shell has ended. */
  restartCount: number,
  options: TerminalScreenOptions,
  onChange: () => void,
): TerminalHandle {
  const [state, setState] = useState<TerminalState>({ name: "connecting", attempt: 0 });
  const [inputHeldBy, setInputHeldBy] = useState<string | null>(null);
  const [screen, setScreen] = useState<TerminalScreenHandle | null>(null);
  const [size, setSize] = useState<TerminalHandle["size"]>(null);
  const connection = useRef<TerminalConnection | null>(null);
  const optionsRef = useRef(options);
  optionsRef.current = options;
  const onChangeRef = useRef(onChange);
  onChangeRef.current = onChange;

  // biome-ignore lint/correctness/useExhaustiveDependencies: `restartCount` restarts the shell.
  useEffect(() => {
    const target = container.current;
    if (!target) return;
    let over = false;
    let created: TerminalScreenHandle | null = null;
    let opened: TerminalConnection | null = null;
    let resizeObserver: ResizeObserver | null = null;
    setState({ name: "connecting", attempt: 0 });
    setInputHeldBy(null);
    const reconnect = () => opened?.reconnect();
    const fit = () => {
      if (!created) return;
      const { cols, rows } = created.fit();
      opened?.resize(cols, rows);
    };
    createTerminalScreen(target, optionsRef.current, fit)
      .then((handle) => {
        if (over) return handle.dispose();
        created = handle;
        const { terminal } = handle;
        opened = new TerminalConnection(sandbox, name, handle.fit(), {
          onState: (next) => {
            setState(next);
            onChangeRef.current();
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
          onInputHeld: setInputHeldBy,
          onError: (text) => showToast(translateServerText(text), { tone: "danger" }),
        });
        const connected = opened;
        terminal.onData((text) => connected.type(text));
        terminal.onBinary((text) => connected.type(text));
        resizeObserver = new ResizeObserver(fit);
        resizeObserver.observe(target);
        connection.current = connected;
        setScreen(handle);
      })
      .catch((error: unknown) => setState({ name: "refused", error }));
    window.addEventListener("online", reconnect);
    return () => {
      over = true;
      window.removeEventListener("online", reconnect);
      resizeObserver?.disconnect();
      opened?.close();
      created?.dispose();
      connection.current = null;
      setScreen(null);
    };
  }, [container, sandbox, name, restartCount]);

  const { size: fontSize, reader } = options;
  useEffect(() => {
    if (!screen) return;
    screen.terminal.options.fontSize = fontSize;
    screen.terminal.options.screenReaderMode = reader;
    const { cols, rows } = screen.fit();
    connection.current?.resize(cols, rows);
  }, [screen, fontSize, reader]);

  return { state, inputHeldBy, screen, connection, size };
}
