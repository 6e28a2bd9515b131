import { describe, expect, it } from "vitest";
import { ApiError } from "@/api/client";
import {
  choiceOfPolicy,
  chooseNetwork,
  DEFAULT_NETWORK,
  defaultNetworkOfKinds,
  describePolicy,
  isNetworkDraftEmpty,
  isNetworkError,
  networkDraftFromPolicy,
  networkErrorText,
  policyFromDraft,
} from "./network-policy";

describe("a network policy", () => {
  it("is a preset, or own rules", () => {
    expect([[], ["allow web"], ["deny web"], ["allow web", "allow git"]].map(choiceOfPolicy)).toEqual([
      "none",
      "web",
      "own",
      "own",
    ]);
  });

  it("is described in short words", () => {
    expect(describePolicy([])).toBe("No network");
    expect(describePolicy(["allow packages"])).toBe("Package indexes");
    expect(describePolicy(["allow a.org:443", "allow packages", "allow git", "deny web"])).toBe(
      "Package indexes + Git hosts + 2 own rules",
    );
  });

  it("is the same after editing without changes", () => {
    for (const policy of [["allow packages", "deny *.b.org:80,443"], ["allow [2001:db8::1]:443"]])
      expect(policyFromDraft(networkDraftFromPolicy(policy))).toEqual(policy);
    expect(policyFromDraft(networkDraftFromPolicy(["allow open"]))).toBe("open");
    expect(policyFromDraft(networkDraftFromPolicy([]))).toBe("none");
    expect(policyFromDraft(DEFAULT_NETWORK)).toBeUndefined();
  });
});

describe("the default of a chat", () => {
  it("is that of its kinds if they agree", () => {
    const kinds = [
      { name: "code", network: [] },
      { name: "linux", network: [] },
      { name: "browser", network: ["allow web"] },
    ];
    expect(defaultNetworkOfKinds(kinds, ["browser"])).toEqual(["allow web"]);
    expect(defaultNetworkOfKinds(kinds, ["code", "linux"])).toEqual([]);
    expect(defaultNetworkOfKinds(kinds, ["code", "browser"])).toBeNull();
    expect(defaultNetworkOfKinds(kinds, [])).toBeNull();
  });
});

describe("own rules", () => {
  it("start with those of the choice before", () => {
    expect(chooseNetwork({ choice: "git", rules: "" }, "own").rules).toBe("allow git");
    expect(chooseNetwork(DEFAULT_NETWORK, "own", ["allow web"]).rules).toBe("allow web");
    expect(chooseNetwork({ choice: "none", rules: "" }, "own").rules).toBe("");
  });

  it("are kept while another choice is tried", () => {
    const own = { choice: "own", rules: "allow a.org" } as const;
    expect(chooseNetwork(chooseNetwork(own, "web"), "own")).toEqual(own);
  });

  it("are incomplete without a line of text", () => {
    expect(isNetworkDraftEmpty({ choice: "own", rules: " \n\n" })).toBe(true);
    expect(isNetworkDraftEmpty({ choice: "none", rules: "" })).toBe(false);
  });
});

describe("an error of a policy", () => {
  const refused = (message: string, code = "INVALID_INPUT") => new ApiError(400, code, message);

  it("is recognized and shown without the name of the field", () => {
    const error = refused("network: rule 'a b' must be 'allow TARGET' or 'deny TARGET'");
    expect(isNetworkError(error)).toBe(true);
    expect(networkErrorText(error)).toBe("rule 'a b' must be 'allow TARGET' or 'deny TARGET'");
    expect(isNetworkError(refused("sandboxes of this server have no network (network.bound is none)"))).toBe(true);
    expect(isNetworkError(refused("name: must be a label"))).toBe(false);
    expect(isNetworkError(refused("network: x", "CONFLICT"))).toBe(false);
  });
});
