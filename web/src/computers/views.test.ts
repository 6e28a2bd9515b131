import { describe, expect, it } from "vitest";
import { fitting, isView, viewsOf } from "./views";

describe("views", () => {
  it("follow from the kind, and first of all from what the server says of it", () => {
    expect(viewsOf("linux")[0]).toBe("desktop");
    expect(viewsOf("code")).not.toContain("desktop");
    expect(viewsOf("code", true)).toContain("desktop");
    expect(viewsOf("mine", false)).not.toContain("desktop");
  });

  it("fall back to one that is there", () => {
    expect(fitting("desktop", "code")).toBe("terminal");
    expect(fitting("browser", "browser")).toBe("desktop");
    expect(fitting("files", "linux")).toBe("files");
  });

  it("are told from other words", () => {
    expect([isView("files"), isView("nothing"), isView(undefined)]).toEqual([true, false, false]);
  });
});
