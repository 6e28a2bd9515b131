import i18next from "i18next";
import { afterEach, beforeAll, expect, it, describe as suite } from "vitest";
import { ApiError } from "@/api/client";
import { chooseLanguage, initLanguage } from "@/i18n";
import { errorCodeText, errorText } from "./error-text";

suite("errors of the server", () => {
  beforeAll(initLanguage);
  afterEach(() => chooseLanguage("en"));

  it("are the server's messages in English", () => {
    expect(errorText(new ApiError(404, "RUN_NOT_FOUND", "There is no run run-1."))).toBe("There is no run run-1.");
  });

  it("call a session a chat in English, as the console does", () => {
    const missing = new ApiError(404, "SESSION_NOT_FOUND", "There is no session 'ses-nope'.");
    expect(errorText(missing)).toBe("Chat not found.");
  });

  it("are translated by code in Chinese", async () => {
    await chooseLanguage("zh");
    expect(i18next.language).toBe("zh");
    expect(errorText(new ApiError(404, "RUN_NOT_FOUND", "There is no run run-1."))).toBe("没有此运行记录。");
    const missing = new ApiError(404, "MODEL_NOT_FOUND", "There is no model 'x'.", {
      params: { model: "x", known: "fast" },
    });
    expect(errorText(missing)).toContain("“x”");
    expect(errorText(new ApiError(400, "INVALID_INPUT", "timeout: must be at least 1"))).toContain("timeout");
  });

  it("keep the server's message if values are missing or the code is unknown", async () => {
    await chooseLanguage("zh");
    expect(errorCodeText("INPUT_HELD", "Ann has control.")).toBe("Ann has control.");
    expect(errorCodeText("NEVER_HEARD_OF", "Something else.")).toBe("Something else.");
  });
});
