import { describe, expect, it } from "vitest";
import {
  type AttachedFiles,
  attachFilesToInputs,
  prepareSubmission,
  taskForValidation,
  unattachedInputs,
} from "./input-bundle";
import { formatTaskDuration, toReadableTask } from "./readable-task";

function file(name: string, text: string): AttachedFiles {
  return { directory: false, files: [{ path: name, file: new File([text], name) }] };
}

describe("inputs", () => {
  const task = { name: "x", inputs: ["data/a.csv", { content: "hi", target: "note.txt" }] };

  it("are sent with the task if text", () => {
    const texts = { name: "x", inputs: [{ content: "hi", target: "note.txt" }] };
    expect(prepareSubmission(texts, {})).toEqual({ task: texts, bundle: null });
  });

  it("are sent as one tar if any is a file", async () => {
    const { task: sentTask, bundle } = prepareSubmission(task, { "data/a.csv": file("a.csv", "1,2") });
    expect(sentTask).toEqual({ name: "x" });
    const text = await bundle?.text();
    expect(text).toContain("a.csv");
    expect(text).toContain("note.txt");
    expect(text).not.toContain("data/a.csv");
  });

  it("keep a directory's files together", async () => {
    const attached = { directory: true, files: [{ path: "src/main.py", file: new File(["x"], "main.py") }] };
    expect(await prepareSubmission({ inputs: ["code"] }, { code: attached }).bundle?.text()).toContain(
      "code/src/main.py",
    );
    const directoryTask = { inputs: [{ source: "code", target: "." }] };
    expect(await prepareSubmission(directoryTask, { code: attached }).bundle?.text()).toMatch(/^src\/main\.py/);
  });

  it("keep their index for validation", () => {
    expect(taskForValidation(task).inputs).toEqual([
      { content: "", target: "a.csv" },
      { content: "hi", target: "note.txt" },
    ]);
  });

  it("match files by name first", () => {
    const inputs = [{ source: "data/a.csv" }];
    expect(unattachedInputs(inputs, {})).toEqual([0]);
    const { attachments, added } = attachFilesToInputs(
      inputs,
      {},
      { "a.csv": file("a.csv", "1"), "b.csv": file("b.csv", "2") },
    );
    expect(Object.keys(attachments)).toEqual(["data/a.csv", "b.csv"]);
    expect(added).toEqual(["b.csv"]);
    expect(unattachedInputs(inputs, attachments)).toEqual([]);
  });
});

describe("a task from the server", () => {
  it("is formatted like a hand-written one", () => {
    expect(
      toReadableTask({
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
    expect([0.5, 45, 3600, 172_800].map(formatTaskDuration)).toEqual(["0.5s", "45s", "1h", "2d"]);
  });
});
