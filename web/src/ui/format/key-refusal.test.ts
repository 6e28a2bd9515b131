import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { ApiError } from "@/api/client";
import { chooseLanguage, initLanguage } from "@/i18n";
import { errorCodeText, errorText } from "./error-text";
import { translateServerText } from "./server-text";

const REFUSED =
  "provider anthropic refused the key it is configured with (status 401); check ANTHROPIC_API_KEY and restart the server";
const SENTENCES = {
  en: "The provider anthropic refused its key. Check ANTHROPIC_API_KEY and restart the server.",
  zh: "提供方 anthropic 拒绝了其密钥。请检查 ANTHROPIC_API_KEY，然后重启服务器。",
} as const;

describe.each(["en", "zh"] as const)("a refused key in %s", (language) => {
  beforeAll(initLanguage);
  afterEach(() => chooseLanguage("en"));

  it("has one sentence in errors, in quotes of agents and in the archive", async () => {
    await chooseLanguage(language);
    expect(errorText(new ApiError(401, "PROVIDER_KEY_REFUSED", REFUSED))).toBe(SENTENCES[language]);
    expect(errorCodeText("AGENT_ERROR", `API Error: 401 ${REFUSED}`)).toBe(SENTENCES[language]);
    expect(translateServerText(REFUSED)).toBe(SENTENCES[language]);
  });
});
