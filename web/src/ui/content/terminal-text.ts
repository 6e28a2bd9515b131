/** Plain text from terminal output. */

const CONTROL_SEQUENCES = new RegExp(
  [
    "\\u001b\\[[0-?]*[ -/]*[@-~]", // Colours and cursor movement.
    "\\u001b\\][^\\u0007\\u001b]*(?:\\u0007|\\u001b\\\\)", // Titles and links.
    "\\u001b[ -/]*[0-Z\\\\^-~]",
    "\\u001b(?:[[\\]][^\\u0007\\u001b\\n]*)?$", // Unfinished sequence at the end.
  ].join("|"),
  "g",
);
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the invisible characters.
const UNPRINTABLE = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

/** Remove terminal control sequences. */
export function stripControlSequences(text: string): string {
  return text.replace(CONTROL_SEQUENCES, "").replace(/\r\n/g, "\n");
}

/** Text as a terminal would finally show it: for overwritten lines, the last version. */
export function finalTerminalText(text: string): string {
  return stripControlSequences(text)
    .split("\n")
    .map((line) => {
      let end = line.length;
      while (line[end - 1] === "\r") end -= 1;
      return line.slice(line.lastIndexOf("\r", end - 1) + 1, end).replace(UNPRINTABLE, "");
    })
    .join("\n");
}
