/**
 * Keeps of a program's output what one line of it may do to a terminal: letters, colours, tabs, a line written again.
 *
 * The output is hostile data. What would move the cursor to other lines, and so forge an earlier command or its exit
 * code, set the title or the clipboard, or make a link, is dropped.
 */
export class OutputFilter {
  /** The beginning of a sequence that may go on in the next piece. */
  private held = "";

  feed(piece: string): string {
    const text = this.held + piece;
    this.held = "";
    const begun = UNFINISHED.exec(text);
    const whole = begun && begun[0].length <= LONGEST ? text.slice(0, begun.index) : text;
    if (begun && whole.length < text.length) this.held = text.slice(whole.length);
    return whole.replace(SEQUENCES, (sequence) => (ALLOWED.test(sequence) ? sequence : "")).replace(CONTROLS, "");
  }
}

const ESC = "\\u001b";
/** An unfinished sequence longer than this is no sequence; it is dropped with the rest of what it hides. */
const LONGEST = 4096;
const SEQUENCES = new RegExp(
  [
    `${ESC}\\[[0-?]*[ -/]*[@-~]`,
    // Operating system commands and other strings, up to their end, or all that is there if they have none.
    `${ESC}[\\]PX^_][^\\u0007\\u001b]*(?:\\u0007|${ESC}\\\\|$)?`,
    `${ESC}[ -/]*[0-~]`,
  ].join("|"),
  "g",
);
const UNFINISHED = new RegExp(`${ESC}(?:\\[[0-?]*[ -/]*|[\\]PX^_][^\\u0007\\u001b]*(?:${ESC})?|[ -/]*)$`);
/** Colours, and the rest of the line erased. */
const ALLOWED = new RegExp(`^${ESC}\\[(?:[0-9;:]*m|[0-2]?K)$`);
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ones that are taken out.
const CONTROLS = /[\u0000-\u0007\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f]|\u001b(?!\[)/g;
