import { describe, expect, it } from "vitest";
import { exportFileName } from "./session-actions";

describe("the file name of an exported chat", () => {
  it("is its title without invalid characters", () => {
    expect(exportFileName("Count the lines")).toBe("Count the lines.paddock");
    expect(exportFileName("../../etc/passwd")).toBe("etc passwd.paddock");
    expect(exportFileName('a<b>:"c"\n\u0000d')).toBe("a b c d.paddock");
    expect(exportFileName("数一数行数")).toBe("数一数行数.paddock");
    expect(exportFileName("")).toBe("chat.paddock");
    expect(exportFileName("...")).toBe("chat.paddock");
    expect(exportFileName("x".repeat(500)).length).toBe(88);
  });
});
