/** xterm wrapper, loaded when the first terminal is opened. */

import type { ISearchOptions, SearchAddon } from "@xterm/addon-search";
import type { ITheme, Terminal } from "@xterm/xterm";

export interface TerminalScreenHandle {
  terminal: Terminal;
  search: SearchAddon;
  /** Fit lines and columns to the available space. */
  fit: () => { cols: number; rows: number };
  dispose: () => void;
}

export interface TerminalScreenOptions {
  size: number;
  reader: boolean;
  /** Read-only output: lines end with LF alone, and there is no cursor. */
  log?: boolean;
}

export async function createTerminalScreen(
  container: HTMLElement,
  options: TerminalScreenOptions,
  /** The size of a character has changed; the caller fits the terminal again. */
  onCellSize: () => void,
): Promise<TerminalScreenHandle> {
  const [{ Terminal }, { FitAddon }, { SearchAddon }] = await Promise.all([
    import("@xterm/xterm"),
    import("@xterm/addon-fit"),
    import("@xterm/addon-search"),
    import("@xterm/xterm/css/xterm.css"),
  ]);
  const terminal = new Terminal({
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono") || "monospace",
    fontSize: options.size,
    screenReaderMode: options.reader,
    scrollback: 10_000,
    cursorBlink: !window.matchMedia("(prefers-reduced-motion: reduce)").matches,
    convertEol: options.log === true,
    disableStdin: options.log === true,
    allowProposedApi: true,
    macOptionIsMeta: true,
    minimumContrastRatio: 4.5,
    theme: terminalTheme(options),
    // Links of hostile programs must not open by an accidental click.
    linkHandler: { activate: () => {} },
  });
  const fitAddon = new FitAddon();
  const search = new SearchAddon();
  terminal.loadAddon(fitAddon);
  terminal.loadAddon(search);
  terminal.open(container);
  // Both change the width of a character, and with it the number of columns.
  await Promise.all([enableWebgl(terminal, onCellSize), document.fonts?.ready]);
  const dark = new MutationObserver(() => {
    terminal.options.theme = terminalTheme(options);
  });
  dark.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  return {
    terminal,
    search,
    fit: () => {
      // A hidden view has no size; keep the last one.
      if (container.clientWidth > 40 && container.clientHeight > 20) fitAddon.fit();
      return { cols: terminal.cols, rows: terminal.rows };
    },
    dispose: () => {
      dark.disconnect();
      terminal.dispose();
    },
  };
}

/** Use WebGL if available, else xterm's default renderer. */
async function enableWebgl(terminal: Terminal, onLost: () => void): Promise<void> {
  try {
    const { WebglAddon } = await import("@xterm/addon-webgl");
    if (!terminal.element?.isConnected) return;
    const webgl = new WebglAddon();
    webgl.onContextLoss(() => {
      webgl.dispose();
      onLost();
    });
    terminal.loadAddon(webgl);
  } catch {
    // WebGL is missing or disabled.
  }
}

const LIGHT_COLOURS: ITheme = {
  black: "#1b1e1a",
  red: "#a8231b",
  green: "#1c6b46",
  yellow: "#7a4f00",
  blue: "#1f5a99",
  magenta: "#86377f",
  cyan: "#136b73",
  white: "#545a51",
  brightBlack: "#5d635a",
  brightRed: "#b3261e",
  brightGreen: "#15563a",
  brightYellow: "#6b4600",
  brightBlue: "#184a80",
  brightMagenta: "#6e2b68",
  brightCyan: "#0f585f",
  brightWhite: "#1b1e1a",
};

function terminalTheme(options: TerminalScreenOptions): ITheme {
  const theme = currentTheme();
  return options.log ? { ...theme, cursor: theme.background } : theme;
}

function currentTheme(): ITheme {
  const root = document.documentElement;
  const style = getComputedStyle(root);
  const token = (name: string) => style.getPropertyValue(name).trim();
  return {
    ...(root.dataset.theme === "dark" ? {} : LIGHT_COLOURS),
    background: token("--surface"),
    foreground: token("--text"),
    cursor: token("--accent"),
    cursorAccent: token("--surface"),
    selectionBackground: token("--info-soft"),
  };
}

export function terminalSearchDecorations(): ISearchOptions {
  const style = getComputedStyle(document.documentElement);
  const token = (name: string) => style.getPropertyValue(name).trim();
  return {
    decorations: {
      matchBackground: token("--warning-soft"),
      matchOverviewRuler: token("--warning"),
      activeMatchBackground: token("--accent-soft"),
      activeMatchBorder: token("--accent"),
      activeMatchColorOverviewRuler: token("--accent"),
    },
  };
}
