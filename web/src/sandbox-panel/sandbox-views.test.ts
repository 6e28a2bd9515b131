import { describe, expect, it } from "vitest";
import { availableView, isSandboxViewName, viewsForKind } from "./sandbox-views";

describe("views", () => {
  it("depend on the kind and the server's facts", () => {
    expect(viewsForKind("linux")[0]).toBe("desktop");
    expect(viewsForKind("code")).not.toContain("desktop");
    expect(viewsForKind("code", true)).toContain("desktop");
    expect(viewsForKind("mine", false)).not.toContain("desktop");
    expect([viewsForKind("code").at(-1), viewsForKind("linux").at(-1)]).toEqual(["network", "network"]);
  });

  it("fall back to an available one", () => {
    expect(availableView("desktop", "code")).toBe("terminal");
    expect(availableView("browser", "browser")).toBe("desktop");
    expect(availableView("files", "linux")).toBe("files");
  });

  it("are distinguished from other words", () => {
    expect([
      isSandboxViewName("files"),
      isSandboxViewName("network"),
      isSandboxViewName("nothing"),
      isSandboxViewName(undefined),
    ]).toEqual([true, true, false, false]);
  });
});
