/** Formats a stored task the way a person would write it. */

import { type Task, toList } from "./task-yaml";

const DURATION_UNITS: [string, number][] = [
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
];

/** "10m" for 600. */
export function formatTaskDuration(value: unknown): unknown {
  if (typeof value !== "number") return value;
  const [unit, size] = DURATION_UNITS.find(([, each]) => value >= each && value % each === 0) ?? ["s", 1];
  return `${value / size}${unit}`;
}

export function toReadableTask(task: Task): Task {
  const readable: Task = { ...task };
  if (isMapping(task.end)) readable.end = readableTimes(task.end, ["timeout", "silence"]);
  if (isMapping(task.retries)) readable.retries = readableTimes(task.retries, ["backoff"]);
  if (task.deliverables !== undefined) readable.deliverables = toList(task.deliverables).map(readableDeliverable);
  if (task.verify !== undefined)
    readable.verify = toList(task.verify).map((check) =>
      unwrapSingleKey(isMapping(check) ? readableTimes(check, ["timeout"]) : check, "run"),
    );
  if (task.inputs !== undefined)
    readable.inputs = toList(task.inputs).map((input) =>
      unwrapSingleKey(
        isMapping(input) && "target" in input ? { ...input, target: workspaceRelative(input.target) } : input,
        "source",
      ),
    );
  if (isMapping(task.llm)) readable.llm = unwrapSingleKey(task.llm, "model");
  if (isMapping(task.retries)) readable.retries = unwrapSingleKey(readable.retries, "times");
  return readable;
}

function readableDeliverable(value: unknown): unknown {
  if (typeof value === "string") return workspaceRelative(value);
  return isMapping(value) ? unwrapSingleKey({ ...value, path: workspaceRelative(value.path) }, "path") : value;
}

function workspaceRelative(path: unknown): unknown {
  return typeof path === "string" ? path.replace(/^\/workspace\/(?=.)/, "") : path;
}

/** The value itself where the mapping has only this key. */
function unwrapSingleKey(value: unknown, key: string): unknown {
  return isMapping(value) && key in value && Object.keys(value).length === 1 ? value[key] : value;
}

function readableTimes(value: Task, names: string[]): Task {
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [name, names.includes(name) ? formatTaskDuration(each) : each]),
  );
}

function isMapping(value: unknown): value is Task {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
