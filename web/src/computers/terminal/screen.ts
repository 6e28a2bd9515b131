/** xterm with what we need of it, made when the first terminal is opened. */

import type { ISearchOptions, SearchAddon } from "@xterm/addon-search";
import type { ITheme, Terminal } from "@xterm/xterm";

export interface Screen {
  terminal: Terminal;
  search: SearchAddon;
  /** As many lines and columns as there is room for. */
  fit: () => { cols: number; rows: number };
  dispose: () => void;
}

export interface Wishes {
  size: number;
  reader: boolean;
  /** Nobody types there: lines end with a line feed alone, and there is no cursor. */
  log?: boolean;
}

export async function makeScreen(place: HTMLElement, wishes: Wishes): Promise<Screen> {
  const [{ Terminal }, { FitAddon }, { SearchAddon }] = await Promise.all([
    import("@xterm/xterm"),
    import("@xterm/addon-fit"),
    import("@xterm/addon-search"),
    import("@xterm/xterm/css/xterm.css"),
  ]);
  const terminal = new Terminal({
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono") || "monospace",
    fontSize: wishes.size,
    screenReaderMode: wishes.reader,
    scrollback: 10_000,
    cursorBlink: !window.matchMedia("(prefers-reduced-motion: reduce)").matches,
    convertEol: wishes.log === true,
    disableStdin: wishes.log === true,
    allowProposedApi: true,
    macOptionIsMeta: true,
    minimumContrastRatio: 4.5,
    theme: themeOf(wishes),
    // Links of a hostile program must not open by a click that was meant for something else.
    linkHandler: { activate: () => {} },
  });
  const fitting = new FitAddon();
  const search = new SearchAddon();
  terminal.loadAddon(fitting);
  terminal.loadAddon(search);
  terminal.open(place);
  void quicken(terminal);
  const dark = new MutationObserver(() => {
    terminal.options.theme = themeOf(wishes);
  });
  dark.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  return {
    terminal,
    search,
    fit: () => {
      // A view that is not seen has no size; it keeps the one it had.
      if (place.clientWidth > 40 && place.clientHeight > 20) fitting.fit();
      return { cols: terminal.cols, rows: terminal.rows };
    },
    dispose: () => {
      dark.disconnect();
      terminal.dispose();
    },
  };
}

/** Draw with the graphics card where there is one; else xterm's own way will do. */
async function quicken(terminal: Terminal): Promise<void> {
  try {
    const { WebglAddon } = await import("@xterm/addon-webgl");
    if (!terminal.element?.isConnected) return;
    const webgl = new WebglAddon();
    webgl.onContextLoss(() => webgl.dispose());
    terminal.loadAddon(webgl);
  } catch {
    // There is none, or it is switched off.
  }
}

const LIGHT: ITheme = {
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

function themeOf(wishes: Wishes): ITheme {
  const theme = themeNow();
  return wishes.log ? { ...theme, cursor: theme.background } : theme;
}

function themeNow(): ITheme {
  const root = document.documentElement;
  const style = getComputedStyle(root);
  const token = (name: string) => style.getPropertyValue(name).trim();
  return {
    ...(root.dataset.theme === "dark" ? {} : LIGHT),
    background: token("--surface"),
    foreground: token("--text"),
    cursor: token("--accent"),
    cursorAccent: token("--surface"),
    selectionBackground: token("--info-soft"),
  };
}

export function searchLook(): ISearchOptions {
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
