import { describe, expect, it } from "vitest";
import { revealed, revealedIn } from "./hidden";

describe("letters that cannot be seen", () => {
  it("are shown by their numbers", () => {
    expect(revealed("rm \u202e/ tmp")).toBe("rm ⟨U+202E⟩/ tmp");
    expect(revealed("l\u200bs")).toBe("l⟨U+200B⟩s");
    expect(revealed("a\u{e0041}b\u001b[2K")).toBe("a⟨U+E0041⟩b⟨U+001B⟩[2K");
  });

  it("are not those that people write", () => {
    expect(revealed('echo "行数" | wc -l\n\tls ~/Größe 😀\r\n')).toBeNull();
  });

  it("are found however deep", () => {
    expect(revealedIn({ command: "ls", more: [{ "na\u200bme": 1 }, "x\u2066y", 3, null] })).toEqual([
      "na⟨U+200B⟩me",
      "x⟨U+2066⟩y",
    ]);
  });
});
