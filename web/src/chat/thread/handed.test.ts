import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { choose, startLanguage } from "@/i18n";
import { handedBack } from "./handed";

const NOTE = "Ada had mouse and keyboard of the linux sandbox, and has handed them back. ";
const WINDOWS = " Windows now:\n0xc00003 '/workspace/report.md - Mousepad' Mousepad pid 65\n It looks like this now:";

describe("notes of what a person did at a computer", () => {
  beforeAll(startLanguage);
  afterEach(() => choose("en"));

  it("are short, without windows", () => {
    const note = `${NOTE}7 s: nothing was clicked or typed.${WINDOWS}`;
    expect(handedBack(note, "Ada")).toBe("You handed back after 7 s. Nothing was clicked or typed.");
    expect(handedBack(note, "Bob")).toBe("Ada handed back after 7 s. Nothing was clicked or typed.");
  });

  it("tell what was done, of several times too", async () => {
    const did =
      "2 mouse clicks; 11 characters typed (not shown here); keys: Enter (2); typed in the terminal main (1 line)";
    const note = `${NOTE}7 s: ${did}. Then: 3 minutes: 1 mouse click.${WINDOWS}`;
    expect(handedBack(note, "Ada")).toBe(
      "You handed back after 7 s + 3 min. Done: 2 clicks, 11 characters typed, keys Enter (2), typing in terminal main, 1 click.",
    );
    await choose("zh");
    expect(handedBack(`${NOTE}7 s: 2 mouse clicks.${WINDOWS}`, "Ada")).toBe("您在 7 s 后交还了控制。操作：点击 2 次。");
  });

  it("say no more than is known", () => {
    const lost = `${NOTE}The server was started again meanwhile, so it is not known what was done. Look at how things are.`;
    expect(handedBack(lost, "Ada")).toBe("You handed back control.");
    expect(handedBack("A helper has ended.", "Ada")).toBeNull();
  });
});
