import { expect, it } from "vitest";
import { eventText } from "./event-text";

it("shows an event's fields and omits those without a value", () => {
  expect(eventText({ etag: null, width: null, cause: "click_mouse" })).toBe("cause: click_mouse");
  expect(eventText({ paths: ["/a", "/b"], exit_code: 0 })).toBe("paths: /a, /b · exit code: 0");
  expect(eventText({ error: { code: "X" } })).toBe('error: {"code":"X"}');
  expect(eventText({})).toBe("");
});
