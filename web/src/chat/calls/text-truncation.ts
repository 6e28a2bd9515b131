/** Truncates long text so that it neither fills the chat nor blocks the browser. */

export const MAX_LINES = 200;
/** A text can be long without having many lines. */
export const MAX_CHARACTERS = 20_000;
const PIECE_LINES = 200;
const PIECE_CHARACTERS = 20_000;

export interface TruncatedText {
  text: string;
  isCut: boolean;
  /** Lines and characters of the whole text. */
  lines: number;
}

export function truncateText(text: string, maxCharacters = MAX_CHARACTERS): TruncatedText {
  let lines = 1;
  let end = text.length;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) {
    if (lines === MAX_LINES) end = at;
    lines += 1;
  }
  end = Math.min(end, maxCharacters);
  return end < text.length ? { text: text.slice(0, end), isCut: true, lines } : { text, isCut: false, lines };
}

/** Split text into pieces that the browser may skip painting while they are out of view. */
export function splitTextIntoPieces(text: string): string[] {
  const pieces: string[] = [];
  let start = 0;
  while (start < text.length) {
    let end = start;
    for (let line = 0; line < PIECE_LINES && end < text.length; line += 1) {
      const next = text.indexOf("\n", end);
      end = next < 0 ? text.length : next + 1;
      if (end - start > PIECE_CHARACTERS) {
        end = safeSplitIndex(text, start + PIECE_CHARACTERS);
        break;
      }
    }
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
}

/** Nearest index that does not split a surrogate pair. */
function safeSplitIndex(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at + 1 : at;
}
