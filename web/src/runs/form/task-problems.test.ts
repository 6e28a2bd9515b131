import { describe, expect, it } from "vitest";
import { parseTaskFileProblems, parseTaskProblems, problemAtPath } from "./task-problems";

const NAMES = ["name", "goal", "agent", "image", "inputs", "end", "deliverablez"];

describe("task problems", () => {
  it("are split by field despite semicolons and colons", () => {
    const found = parseTaskProblems(
      "end.timeout: 'zz' is not a duration; write seconds; inputs.0: names a file; upload a bundle; " +
        "image: no recipe named 'x'; known: host; if it is an OCI image, pull it",
      NAMES,
    );
    expect(found).toEqual([
      { path: ["end", "timeout"], message: "'zz' is not a duration; write seconds" },
      { path: ["inputs", 0], message: "names a file; upload a bundle" },
      { path: ["image"], message: "no recipe named 'x'; known: host; if it is an OCI image, pull it" },
    ]);
    expect(problemAtPath(found, ["end"])).toBe("timeout: 'zz' is not a duration; write seconds");
    expect(problemAtPath(found, ["inputs", 0])).toBe("names a file; upload a bundle");
    expect(problemAtPath(found, ["goal"])).toBeNull();
  });

  it("of a file have a line and a field", () => {
    const error =
      "hello.yaml:3: end.timeout: 'x' is not a duration; write seconds\nhello.yaml:1: not valid YAML: a: b\nodd";
    expect(parseTaskFileProblems(error)).toEqual([
      { file: "hello.yaml", line: 3, field: "end.timeout", message: "'x' is not a duration; write seconds" },
      { file: "hello.yaml", line: 1, field: "", message: "not valid YAML: a: b" },
      { file: "", line: null, field: "", message: "odd" },
    ]);
  });

  it("belong to the task if no field is named", () => {
    expect(parseTaskProblems("the image 'x' is not built; build it", NAMES)).toEqual([
      { path: [], message: "the image 'x' is not built; build it" },
    ]);
  });
});
