import i18next from "i18next";
import { afterEach, beforeAll, expect, it, describe as suite } from "vitest";
import { ApiError } from "@/api/client";
import { choose, startLanguage } from "@/i18n";
import { describe, describeCode } from "./describe";

suite("errors of the server", () => {
  beforeAll(startLanguage);
  afterEach(() => choose("en"));

  it("are the server's own words in English", () => {
    expect(describe(new ApiError(404, "RUN_NOT_FOUND", "There is no run run-1."))).toBe("There is no run run-1.");
  });

  it("call a session a chat in English, as the console does", () => {
    const missing = new ApiError(404, "SESSION_NOT_FOUND", "There is no session 'ses-nope'.");
    expect(describe(missing)).toBe("There is no such chat.");
  });

  it("are told by their code in Chinese", async () => {
    await choose("zh");
    expect(i18next.language).toBe("zh");
    expect(describe(new ApiError(404, "RUN_NOT_FOUND", "There is no run run-1."))).toBe("没有此运行记录。");
    const missing = new ApiError(404, "MODEL_NOT_FOUND", "There is no model 'x'.", {
      params: { model: "x", known: "fast" },
    });
    expect(describe(missing)).toContain("“x”");
    expect(describe(new ApiError(400, "INVALID_INPUT", "timeout: must be at least 1"))).toContain("timeout");
  });

  it("keep the server's words where values are missing or the code is unknown", async () => {
    await choose("zh");
    expect(describeCode("INPUT_HELD", "Ann has control.")).toBe("Ann has control.");
    expect(describeCode("NEVER_HEARD_OF", "Something else.")).toBe("Something else.");
  });
});
