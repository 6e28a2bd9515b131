import { expect, it } from "vitest";
import { formatEventData } from "./format-event-data";

it("shows an event's fields and omits those without a value", () => {
  expect(formatEventData({ etag: null, width: null, cause: "click_mouse" })).toBe("cause: click_mouse");
  expect(formatEventData({ paths: ["/a", "/b"], exit_code: 0 })).toBe("paths: /a, /b · exit code: 0");
  expect(formatEventData({ error: { code: "X" } })).toBe('error: {"code":"X"}');
  expect(formatEventData({})).toBe("");
});
