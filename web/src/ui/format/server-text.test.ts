import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { chooseLanguage } from "@/i18n";
import { translateServerText } from "./server-text";

const DURATION = "'zz' is not a duration; write seconds or a number with ms, s, m, h, d or w, such as 10m";

describe("messages of the server", () => {
  it("are unchanged in English", () => {
    for (const message of [DURATION, "is missing; add it", "its lifetime was over", "something new"])
      expect(translateServerText(message)).toBe(message);
  });
});

describe("messages of the server in Chinese", () => {
  beforeAll(() => chooseLanguage("zh"));
  afterAll(() => chooseLanguage("en"));

  it.each([
    [DURATION, "'zz'"],
    ["'x' is not a size; write bytes or a number with Ki, Mi, Gi, Ti, k, M, G or T, such as 512Mi", "'x'"],
    ["must be at least 1, not 0", "1"],
    ["must be 'a' or 'b', not 'c'; did you mean 'b'?", "'c'"],
    ["no such field; did you mean 'goal'?", "goal"],
    ["unused for 600 s", "600"],
    ["the sandbox's first process ended with code 3", "3"],
    ["is missing; add it", ""],
    ["there is no such file", ""],
    ["out_of_memory", ""],
    ["`seed` was left out: Anthropic's API has none", "`seed`"],
    ["the tool `web_search` was left out: only Gemini has it", "`web_search`"],
    ["`top_p` was left out: this model takes either it or `temperature`", "`top_p`"],
    ["effort `max` became `high`, the most this model takes", "`high`"],
    ["`max_tokens` was set to 8192: Anthropic's API needs a number", "8192"],
    ["top_k: Chat Completions has no such setting", "`top_k`"],
    ["acme did not answer; asked fast", "fast"],
    ["the agent 'codex' needs the name of a model", "codex"],
    ["it answered with status 404 when asked for its models", "404"],
    [
      "the upstream could not be reached: Connection refused; check its address http://h, which usually ends in /v1",
      "h",
    ],
    ["not valid YAML: x", "x"],
    ["'x y' is no image's name; it has no blanks", "'x y'"],
    ["rule 'a b' must be 'allow TARGET' or 'deny TARGET', such as 'allow pypi.org:443'", "'a b'"],
    ["rule 'a:x': 'x' must be ports such as 443, 80,443 or 8000-8100", "'a:x'"],
    ["rule 'a:0': 0 is not a range of ports from 1 to 65535", "'a:0'"],
    ["rule 'allow 10.0.0.1/8': 10.0.0.1/8 has host bits set; write 10.0.0.0/8", "10.0.0.0/8"],
    ["rule 'a..b': 'a..b' is not a host name, an address or a network", "'a..b'"],
    [
      "rule 'a*b': 'a*b' is not a host name, an address or a network; put the wildcard before a whole name, such as *.example.com",
      "*.example.com",
    ],
    ["'none' stands alone; leave it out of a list of rules", "none"],
    ["has 1001 rules; a policy may have 1000", "1001"],
    ["port 44772 controls the sandbox and cannot be exposed; choose another port", "44772"],
    ["sandbox sb-1 has its 32 previews; close one first", "32"],
    ["expired", ""],
    ["its lifetime was over", ""],
  ])("are translated with their values: %s", (message, value) => {
    const text = translateServerText(message);
    expect(text).toContain(value);
    expect(text).toMatch(/\p{Script=Han}/u);
    expect(text.replaceAll("Connection refused", "")).not.toMatch(/[a-z]{3,} [a-z]{2,}/);
  });

  it("are marked as the server's without a translation", () => {
    expect(translateServerText("something new")).toBe("服务器说明：something new");
  });
});
