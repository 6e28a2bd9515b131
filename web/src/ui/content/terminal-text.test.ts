import { describe, expect, it } from "vitest";
import { finalTerminalText, stripControlSequences } from "./terminal-text";

describe("text for a terminal", () => {
  it.each([
    ["\u001b[1;32mgreen\u001b[0m and \u001b[38;5;196mred\u001b[m", "green and red"],
    ["\u001b]0;a title\u0007here\u001b]8;;https://x\u001b\\link\u001b]8;;\u001b\\", "herelink"],
    ["\u001b(B\u001b=\u001b>\u001b7\u001b8\u001bMx\u001b[?25l", "x"],
    ["one\r\ntwo\n", "one\ntwo\n"],
    ["half of a colour \u001b[3", "half of a colour "],
    ["\u001b]0;half of a title", ""],
    ["no codes: [32m ]0; \\", "no codes: [32m ]0; \\"],
  ])("is plain without its codes: %j", (text, shown) => {
    expect(stripControlSequences(text)).toBe(shown);
  });

  it("shows the last version of each line", () => {
    expect(finalTerminalText("10%\r20%\r30%\ndone\r\n")).toBe("30%\ndone\n");
    expect(finalTerminalText("10%\r20%\r")).toBe("20%");
    expect(finalTerminalText("\r\r\n\ra\r")).toBe("\na");
    expect(finalTerminalText("a\tb\u0000\u0007c")).toBe("a\tbc");
  });

  it("stays fast for adversarial input", () => {
    const startedAt = performance.now();
    for (const piece of ["\u001b]", "\u001b[", "\u001b[;", "\u001b", "\r", "\u001b]\u0007\u001b"])
      for (const end of ["", "x"]) finalTerminalText(piece.repeat(100_000) + end);
    expect(performance.now() - startedAt).toBeLessThan(2_000);
  });
});
