import { describe, expect, it } from "vitest";
import { sessionExportFileName } from "./session-actions";

describe("the file name of an exported chat", () => {
  it("is its title without invalid characters", () => {
    expect(sessionExportFileName("Count the lines")).toBe("Count the lines.paddock");
    expect(sessionExportFileName("../../etc/passwd")).toBe("etc passwd.paddock");
    expect(sessionExportFileName('a<b>:"c"\n\u0000d')).toBe("a b c d.paddock");
    expect(sessionExportFileName("数一数行数")).toBe("数一数行数.paddock");
    expect(sessionExportFileName("")).toBe("chat.paddock");
    expect(sessionExportFileName("...")).toBe("chat.paddock");
    expect(sessionExportFileName("x".repeat(500)).length).toBe(88);
  });
});
