import { describe, expect, it } from "vitest";
import { follow, isTyping, REST, type Situation } from "./panel";

const AT_REST: Situation = {
  attention: { sandbox: "box-1", view: "terminal", number: 7 },
  handled: 3,
  chosen: null,
  usedAt: 0,
  typing: false,
  now: 100_000,
};
const WANTED = { sandbox: "box-1", view: "terminal" };

describe("the computers' panel", () => {
  it("follows the agent", () => {
    expect(follow(AT_REST)).toEqual({ type: "show", chosen: WANTED });
    expect(follow({ ...AT_REST, chosen: { sandbox: "box-1", view: "files" } })).toEqual({
      type: "show",
      chosen: WANTED,
    });
  });

  it("only tells while the person types or has just chosen something", () => {
    expect(follow({ ...AT_REST, typing: true })).toEqual({ type: "tell", chosen: WANTED });
    expect(follow({ ...AT_REST, usedAt: AT_REST.now - REST + 1 })).toEqual({ type: "tell", chosen: WANTED });
    expect(follow({ ...AT_REST, usedAt: AT_REST.now - REST })).toEqual({ type: "show", chosen: WANTED });
  });

  it("has nothing to do for what was dealt with or is shown already", () => {
    expect(follow({ ...AT_REST, handled: 7 }).type).toBe("none");
    expect(follow({ ...AT_REST, attention: null }).type).toBe("none");
    expect(follow({ ...AT_REST, chosen: { sandbox: "box-1", view: "terminal" } }).type).toBe("none");
  });
});

describe("typing", () => {
  it("is what happens in fields, not on buttons", () => {
    const made = (html: string) => {
      document.body.innerHTML = html;
      return document.body.firstElementChild;
    };
    expect(isTyping(made("<textarea></textarea>"))).toBe(true);
    expect(isTyping(made('<input type="search">'))).toBe(true);
    expect(isTyping(made('<input type="checkbox">'))).toBe(false);
    expect(isTyping(made("<button></button>"))).toBe(false);
    expect(isTyping(null)).toBe(false);
  });
});
