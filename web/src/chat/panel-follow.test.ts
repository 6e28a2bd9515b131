import { describe, expect, it } from "vitest";
import { decideFollow, type FollowInput, isTextInput, MANUAL_CHOICE_MS } from "./panel-follow";

const AT_REST: FollowInput = {
  attention: { sandbox: "box-1", view: "terminal", number: 7 },
  handled: 3,
  chosen: null,
  usedAt: 0,
  typing: false,
  now: 100_000,
};
const WANTED = { sandbox: "box-1", view: "terminal" };

describe("the sandbox panel", () => {
  it("follows the agent", () => {
    expect(decideFollow(AT_REST)).toEqual({ type: "show", chosen: WANTED });
    expect(decideFollow({ ...AT_REST, chosen: { sandbox: "box-1", view: "files" } })).toEqual({
      type: "show",
      chosen: WANTED,
    });
  });

  it("only notifies while the user types or has just chosen a view", () => {
    expect(decideFollow({ ...AT_REST, typing: true })).toEqual({ type: "tell", chosen: WANTED });
    expect(decideFollow({ ...AT_REST, usedAt: AT_REST.now - MANUAL_CHOICE_MS + 1 })).toEqual({
      type: "tell",
      chosen: WANTED,
    });
    expect(decideFollow({ ...AT_REST, usedAt: AT_REST.now - MANUAL_CHOICE_MS })).toEqual({
      type: "show",
      chosen: WANTED,
    });
  });

  it("ignores handled and already shown activity", () => {
    expect(decideFollow({ ...AT_REST, handled: 7 }).type).toBe("none");
    expect(decideFollow({ ...AT_REST, attention: null }).type).toBe("none");
    expect(decideFollow({ ...AT_REST, chosen: { sandbox: "box-1", view: "terminal" } }).type).toBe("none");
  });
});

describe("typing", () => {
  it("is detected in fields, not on buttons", () => {
    const made = (html: string) => {
      document.body.innerHTML = html;
      return document.body.firstElementChild;
    };
    expect(isTextInput(made("<textarea></textarea>"))).toBe(true);
    expect(isTextInput(made('<input type="search">'))).toBe(true);
    expect(isTextInput(made('<input type="checkbox">'))).toBe(false);
    expect(isTextInput(made("<button></button>"))).toBe(false);
    expect(isTextInput(null)).toBe(false);
  });
});
