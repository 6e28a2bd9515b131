/** Text as programs write it for a terminal. */

const CODES = new RegExp(
  [
    "\\u001b\\[[0-?]*[ -/]*[@-~]", // Colours, and where to go.
    "\\u001b\\][^\\u0007\\u001b]*(?:\\u0007|\\u001b\\\\)", // Titles and links.
    "\\u001b[ -/]*[0-Z\\\\^-~]",
    "\\u001b(?:[[\\]][^\\u0007\\u001b\\n]*)?$", // One of which the rest has not come yet.
  ].join("|"),
  "g",
);
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ones that nobody sees.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

/** Without what only a terminal understands. */
export function plain(text: string): string {
  return text.replace(CODES, "").replace(/\r\n/g, "\n");
}

/** As it would stand there: of a line that was written over and over, what was written last. */
export function standing(text: string): string {
  return plain(text)
    .split("\n")
    .map((line) => {
      let end = line.length;
      while (line[end - 1] === "\r") end -= 1;
      return line.slice(line.lastIndexOf("\r", end - 1) + 1, end).replace(UNSEEN, "");
    })
    .join("\n");
}
