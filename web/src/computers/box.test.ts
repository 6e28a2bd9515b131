import { describe, expect, it } from "vitest";
import { ApiError } from "@/api/client";
import { boxOf, condition, type Sandbox } from "./box";

const sandbox = (state: Sandbox["status"]["state"], message?: string): Sandbox => ({
  id: "sb-1",
  status: { state, message },
  metadata: {},
  extensions: { "paddock.kind": "linux" },
  createdAt: "2026-01-01T00:00:00Z",
  visibility: "private",
});

describe("condition", () => {
  const ready = boxOf(sandbox("Running"));

  it("is what the server says", () => {
    expect(condition(ready, sandbox("Running"), null).state).toBe("ready");
    expect(condition(ready, sandbox("Paused"), null).state).toBe("paused");
    expect(condition(ready, sandbox("Failed", "out of memory"), null)).toEqual({
      state: "broken",
      reason: "out of memory",
    });
  });

  it("is gone when the server has ended or forgotten it", () => {
    expect(condition(ready, sandbox("Terminated"), null).state).toBe("gone");
    expect(condition(ready, undefined, new ApiError(404, "SANDBOX_NOT_FOUND", "")).state).toBe("gone");
  });

  it("is not gone only because the server does not answer", () => {
    expect(condition(ready, undefined, new ApiError(0, "UNREACHABLE", "")).state).toBe("ready");
  });

  it("is what the session says of its end, whatever was asked before", () => {
    expect(condition({ ...ready, state: "released", reason: "idle" }, sandbox("Running"), null)).toEqual({
      state: "gone",
      reason: "idle",
    });
  });
});
