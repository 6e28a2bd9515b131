import { describe, expect, it } from "vitest";
import { type Attached, attach, checkable, prepared, unattached } from "./bundle";
import { friendly, timeText } from "./friendly";

function file(name: string, text: string): Attached {
  return { directory: false, files: [{ path: name, file: new File([text], name) }] };
}

describe("inputs", () => {
  const task = { name: "x", inputs: ["data/a.csv", { content: "hi", target: "note.txt" }] };

  it("go with the task where they are text", () => {
    const texts = { name: "x", inputs: [{ content: "hi", target: "note.txt" }] };
    expect(prepared(texts, {})).toEqual({ task: texts, bundle: null });
  });

  it("go into one tar where one is a file, texts too", async () => {
    const { task: sent, bundle } = prepared(task, { "data/a.csv": file("a.csv", "1,2") });
    expect(sent).toEqual({ name: "x" });
    const text = await bundle?.text();
    expect(text).toContain("a.csv");
    expect(text).toContain("note.txt");
    expect(text).not.toContain("data/a.csv");
  });

  it("of a directory keep what is in it together", async () => {
    const attached = { directory: true, files: [{ path: "src/main.py", file: new File(["x"], "main.py") }] };
    expect(await prepared({ inputs: ["code"] }, { code: attached }).bundle?.text()).toContain("code/src/main.py");
    const here = { inputs: [{ source: "code", target: "." }] };
    expect(await prepared(here, { code: attached }).bundle?.text()).toMatch(/^src\/main\.py/);
  });

  it("keep their places where the server checks them without files", () => {
    expect(checkable(task).inputs).toEqual([
      { content: "", target: "a.csv" },
      { content: "hi", target: "note.txt" },
    ]);
  });

  it("take a file of their own name first", () => {
    const inputs = [{ source: "data/a.csv" }];
    expect(unattached(inputs, {})).toEqual([0]);
    const { attachments, added } = attach(inputs, {}, { "a.csv": file("a.csv", "1"), "b.csv": file("b.csv", "2") });
    expect(Object.keys(attachments)).toEqual(["data/a.csv", "b.csv"]);
    expect(added).toEqual(["b.csv"]);
    expect(unattached(inputs, attachments)).toEqual([]);
  });
});

describe("a task from the server", () => {
  it("is written as a person would", () => {
    expect(
      friendly({
        end: { timeout: 600, silence: null },
        deliverables: [{ path: "/workspace/report.md" }, { path: "/workspace/x", required: false }],
        verify: [{ run: "true" }, { run: "false", timeout: 90 }],
        inputs: [{ source: "a.csv" }],
        llm: { model: "fast" },
      }),
    ).toEqual({
      end: { timeout: "10m", silence: null },
      deliverables: ["report.md", { path: "x", required: false }],
      verify: ["true", { run: "false", timeout: "90s" }],
      inputs: ["a.csv"],
      llm: "fast",
    });
    expect([0.5, 45, 3600, 172_800].map(timeText)).toEqual(["0.5s", "45s", "1h", "2d"]);
  });
});
