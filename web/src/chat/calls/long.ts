/** Long texts, so that they neither fill the thread nor stop the browser. */

export const MOST_LINES = 200;
/** A text may be long without having many lines. */
export const MOST_LETTERS = 20_000;
const PIECE_LINES = 200;
const PIECE_LETTERS = 20_000;

export interface Cut {
  text: string;
  isCut: boolean;
  /** Of the whole text. */
  lines: number;
}

export function cut(text: string): Cut {
  let lines = 1;
  let end = text.length;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) {
    if (lines === MOST_LINES) end = at;
    lines += 1;
  }
  end = Math.min(end, MOST_LETTERS);
  return end < text.length ? { text: text.slice(0, end), isCut: true, lines } : { text, isCut: false, lines };
}

/** A text in pieces that the browser may leave unpainted while they are out of sight. Joined, they are the text. */
export function pieces(text: string): string[] {
  const found: string[] = [];
  let begin = 0;
  while (begin < text.length) {
    let end = begin;
    for (let line = 0; line < PIECE_LINES && end < text.length; line += 1) {
      const next = text.indexOf("\n", end);
      end = next < 0 ? text.length : next + 1;
      if (end - begin > PIECE_LETTERS) {
        end = whole(text, begin + PIECE_LETTERS);
        break;
      }
    }
    found.push(text.slice(begin, end));
    begin = end;
  }
  return found;
}

/** A place that is not within a letter of two halves. */
function whole(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at + 1 : at;
}
