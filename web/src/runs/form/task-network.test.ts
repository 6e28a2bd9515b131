import { describe, expect, it } from "vitest";
import { networkDraftFromTask, taskNetworkFromDraft } from "./task-network";

describe("the network of a task", () => {
  it("is shown as a preset or as rules, in whatever form the file has it", () => {
    expect(networkDraftFromTask(undefined).choice).toBe("none");
    for (const none of ["none", null, []]) expect(networkDraftFromTask(none).choice).toBe("none");
    for (const packages of ["packages", "allow packages", ["packages"], [{ allow: "packages" }]])
      expect(networkDraftFromTask(packages).choice).toBe("packages");
    expect(
      networkDraftFromTask([
        "packages",
        { allow: ["a.org", "*.b.org"], ports: [80, 443] },
        { deny: "2001:db8::1", ports: 22 },
      ]),
    ).toEqual({
      choice: "own",
      rules: "packages\nallow a.org:80,443\nallow *.b.org:80,443\ndeny [2001:db8::1]:22",
    });
    expect(networkDraftFromTask("deny web")).toEqual({ choice: "own", rules: "deny web" });
  });

  it("is left out if there is none", () => {
    expect(taskNetworkFromDraft({ choice: "none", rules: "" })).toBeUndefined();
    expect(taskNetworkFromDraft({ choice: "own", rules: " \n" })).toBeUndefined();
    expect(taskNetworkFromDraft({ choice: "git", rules: "allow a.org" })).toBe("git");
    expect(taskNetworkFromDraft({ choice: "own", rules: "allow a.org\n\n deny b.org " })).toEqual([
      "allow a.org",
      "deny b.org",
    ]);
  });
});
