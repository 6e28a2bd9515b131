import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { chooseLanguage, initLanguage } from "@/i18n";
import { describeTakeoverNote } from "./takeover-note";

const NOTE = "Ada had mouse and keyboard of the linux sandbox, and has handed them back. ";
const WINDOWS = " Windows now:\n0xc00003 '/workspace/report.md - Mousepad' Mousepad pid 65\n It looks like this now:";

describe("takeover notes", () => {
  beforeAll(initLanguage);
  afterEach(() => chooseLanguage("en"));

  it("omit window titles", () => {
    const note = `${NOTE}7 s: nothing was clicked or typed.${WINDOWS}`;
    expect(describeTakeoverNote(note, "Ada")).toBe("You handed back control after 7 s. Nothing was clicked or typed.");
    expect(describeTakeoverNote(note, "Bob")).toBe("Ada handed back control after 7 s. Nothing was clicked or typed.");
  });

  it("summarize the activity of several takeovers", async () => {
    const activity =
      "2 mouse clicks; 11 characters typed (not shown here); keys: Enter (2); typed in the terminal main (1 line)";
    const note = `${NOTE}7 s: ${activity}. Then: 3 minutes: 1 mouse click.${WINDOWS}`;
    expect(describeTakeoverNote(note, "Ada")).toBe(
      "You handed back control after 7 s + 3 min. Actions: 2 clicks, 11 characters typed, keys Enter (2), typing in terminal main, 1 click.",
    );
    await chooseLanguage("zh");
    expect(describeTakeoverNote(note, "Ada")).toBe(
      "您在 7 秒 + 3 分后交还了控制。操作：点击 2 次、输入 11 个字符、按键 Enter (2)、在终端 main 中输入、点击 1 次。",
    );
  });

  it("contain only known activity", () => {
    const restartNote = `${NOTE}The server was started again meanwhile, so it is not known what was done. Look at how things are.`;
    expect(describeTakeoverNote(restartNote, "Ada")).toBe("You handed back control.");
    expect(describeTakeoverNote("A helper has ended.", "Ada")).toBeNull();
  });
});
