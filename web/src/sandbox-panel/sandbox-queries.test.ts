import { describe, expect, it } from "vitest";
import { ApiError } from "@/api/client";
import { type Sandbox, sandboxCondition, sandboxViewFromResponse } from "./sandbox-queries";

const sandbox = (state: Sandbox["status"]["state"], message?: string): Sandbox => ({
  id: "sb-1",
  status: { state, message },
  metadata: {},
  extensions: { "paddock.kind": "linux" },
  network: [],
  createdAt: "2026-01-01T00:00:00Z",
  visibility: "private",
});

describe("sandboxCondition", () => {
  const ready = sandboxViewFromResponse(sandbox("Running"));

  it("is the server's state", () => {
    expect(sandboxCondition(ready, sandbox("Running"), null).state).toBe("ready");
    expect(sandboxCondition(ready, sandbox("Paused"), null).state).toBe("paused");
    expect(sandboxCondition(ready, sandbox("Failed", "out of memory"), null)).toEqual({
      state: "broken",
      reason: "out of memory",
    });
  });

  it("is gone when ended or unknown", () => {
    expect(sandboxCondition(ready, sandbox("Terminated"), null).state).toBe("gone");
    expect(sandboxCondition(ready, undefined, new ApiError(404, "SANDBOX_NOT_FOUND", "")).state).toBe("gone");
  });

  it("is not gone while the server is unreachable", () => {
    expect(sandboxCondition(ready, undefined, new ApiError(0, "UNREACHABLE", "")).state).toBe("ready");
  });

  it("follows the session's end over older responses", () => {
    expect(sandboxCondition({ ...ready, state: "released", reason: "idle" }, sandbox("Running"), null)).toEqual({
      state: "gone",
      reason: "idle",
    });
  });
});
