import { describe, expect, it } from "vitest";
import { availableView, isView, viewsOf } from "./sandbox-views";

describe("views", () => {
  it("depend on the kind and the server's facts", () => {
    expect(viewsOf("linux")[0]).toBe("desktop");
    expect(viewsOf("code")).not.toContain("desktop");
    expect(viewsOf("code", true)).toContain("desktop");
    expect(viewsOf("mine", false)).not.toContain("desktop");
  });

  it("fall back to an available one", () => {
    expect(availableView("desktop", "code")).toBe("terminal");
    expect(availableView("browser", "browser")).toBe("desktop");
    expect(availableView("files", "linux")).toBe("files");
  });

  it("are distinguished from other words", () => {
    expect([isView("files"), isView("nothing"), isView(undefined)]).toEqual([true, false, false]);
  });
});
