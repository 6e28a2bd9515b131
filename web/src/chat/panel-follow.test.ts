import { describe, expect, it } from "vitest";
import { decidePanelFollow, isTextInput, MANUAL_CHOICE_MS, type PanelFollowInput } from "./panel-follow";

const IDLE_INPUT: PanelFollowInput = {
  attention: { sandbox: "box-1", view: "terminal", number: 7 },
  handledNumber: 3,
  chosen: null,
  usedAt: 0,
  typing: false,
  now: 100_000,
};
const WANTED = { sandbox: "box-1", view: "terminal" };

describe("the sandbox panel", () => {
  it("follows the agent", () => {
    expect(decidePanelFollow(IDLE_INPUT)).toEqual({ type: "show", chosen: WANTED });
    expect(decidePanelFollow({ ...IDLE_INPUT, chosen: { sandbox: "box-1", view: "files" } })).toEqual({
      type: "show",
      chosen: WANTED,
    });
  });

  it("only notifies while the user types or has just chosen a view", () => {
    expect(decidePanelFollow({ ...IDLE_INPUT, typing: true })).toEqual({ type: "notify", chosen: WANTED });
    expect(decidePanelFollow({ ...IDLE_INPUT, usedAt: IDLE_INPUT.now - MANUAL_CHOICE_MS + 1 })).toEqual({
      type: "notify",
      chosen: WANTED,
    });
    expect(decidePanelFollow({ ...IDLE_INPUT, usedAt: IDLE_INPUT.now - MANUAL_CHOICE_MS })).toEqual({
      type: "show",
      chosen: WANTED,
    });
  });

  it("ignores handled and already shown activity", () => {
    expect(decidePanelFollow({ ...IDLE_INPUT, handledNumber: 7 }).type).toBe("none");
    expect(decidePanelFollow({ ...IDLE_INPUT, attention: null }).type).toBe("none");
    expect(decidePanelFollow({ ...IDLE_INPUT, chosen: { sandbox: "box-1", view: "terminal" } }).type).toBe("none");
  });
});

describe("typing", () => {
  it("is detected in fields, not on buttons", () => {
    const elementFrom = (html: string) => {
      document.body.innerHTML = html;
      return document.body.firstElementChild;
    };
    expect(isTextInput(elementFrom("<textarea></textarea>"))).toBe(true);
    expect(isTextInput(elementFrom('<input type="search">'))).toBe(true);
    expect(isTextInput(elementFrom('<input type="checkbox">'))).toBe(false);
    expect(isTextInput(elementFrom("<button></button>"))).toBe(false);
    expect(isTextInput(null)).toBe(false);
  });
});
