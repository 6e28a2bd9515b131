import { describe, expect, it } from "vitest";
import { fileNameOf } from "./actions";

describe("the name of an exported chat", () => {
  it("is its title, as far as a file may be called so", () => {
    expect(fileNameOf("Count the lines")).toBe("Count the lines.paddock");
    expect(fileNameOf("../../etc/passwd")).toBe("etc passwd.paddock");
    expect(fileNameOf('a<b>:"c"\n\u0000d')).toBe("a b c d.paddock");
    expect(fileNameOf("数一数行数")).toBe("数一数行数.paddock");
    expect(fileNameOf("")).toBe("chat.paddock");
    expect(fileNameOf("...")).toBe("chat.paddock");
    expect(fileNameOf("x".repeat(500)).length).toBe(88);
  });
});
