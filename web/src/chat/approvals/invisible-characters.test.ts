import { describe, expect, it } from "vitest";
import { revealInvisibleCharacters, revealInvisibleInArguments } from "./invisible-characters";

describe("invisible characters", () => {
  it("are shown as code points", () => {
    expect(revealInvisibleCharacters("rm \u202e/ tmp")).toBe("rm ⟨U+202E⟩/ tmp");
    expect(revealInvisibleCharacters("l\u200bs")).toBe("l⟨U+200B⟩s");
    expect(revealInvisibleCharacters("a\u{e0041}b\u001b[2K")).toBe("a⟨U+E0041⟩b⟨U+001B⟩[2K");
  });

  it("exclude ordinary text", () => {
    expect(revealInvisibleCharacters('echo "行数" | wc -l\n\tls ~/Größe 😀\r\n')).toBeNull();
  });

  it("are found at any depth", () => {
    expect(revealInvisibleInArguments({ command: "ls", more: [{ "na\u200bme": 1 }, "x\u2066y", 3, null] })).toEqual([
      "na⟨U+200B⟩me",
      "x⟨U+2066⟩y",
    ]);
  });
});
