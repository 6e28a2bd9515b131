import { expect, it } from "vitest";
import { told } from "./eventText";

it("shows an event's fields in words and leaves out those without a value", () => {
  expect(told({ etag: null, width: null, cause: "click_mouse" })).toBe("cause: click_mouse");
  expect(told({ paths: ["/a", "/b"], exit_code: 0 })).toBe("paths: /a, /b · exit code: 0");
  expect(told({ error: { code: "X" } })).toBe('error: {"code":"X"}');
  expect(told({})).toBe("");
});
