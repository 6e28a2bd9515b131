/**
 * Limits program output to what is safe in a terminal: text, colours, tabs, overwriting a line. The output is hostile
 * data. Sequences that move the cursor to other lines (and could forge an earlier command or exit code), set the title
 * or the clipboard, or create links are dropped.
 */
export class TerminalOutputFilter {
  /** Start of a sequence that may continue in the next piece. */
  private pending = "";

  feed(piece: string): string {
    const text = this.pending + piece;
    this.pending = "";
    const unfinished = UNFINISHED.exec(text);
    const complete = unfinished && unfinished[0].length <= MAX_SEQUENCE ? text.slice(0, unfinished.index) : text;
    if (unfinished && complete.length < text.length) this.pending = text.slice(complete.length);
    return complete.replace(SEQUENCES, (sequence) => (ALLOWED.test(sequence) ? sequence : "")).replace(CONTROLS, "");
  }
}

const ESC = "\\u001b";
/** Longer unfinished sequences are invalid and dropped with what they hide. */
const MAX_SEQUENCE = 4096;
const SEQUENCES = new RegExp(
  [
    `${ESC}\\[[0-?]*[ -/]*[@-~]`,
    // OSC and other string sequences, up to their terminator or the end of the text.
    `${ESC}[\\]PX^_][^\\u0007\\u001b]*(?:\\u0007|${ESC}\\\\|$)?`,
    `${ESC}[ -/]*[0-~]`,
  ].join("|"),
  "g",
);
const UNFINISHED = new RegExp(`${ESC}(?:\\[[0-?]*[ -/]*|[\\]PX^_][^\\u0007\\u001b]*(?:${ESC})?|[ -/]*)$`);
/** Colours, and erasing the rest of the line. */
const ALLOWED = new RegExp(`^${ESC}\\[(?:[0-9;:]*m|[0-2]?K)$`);
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters to remove.
const CONTROLS = /[\u0000-\u0007\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f]|\u001b(?!\[)/g;
