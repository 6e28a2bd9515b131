/** Formats a stored task the way a person would write it. */

import { asList, type Task } from "./task-yaml";

const DURATION_UNITS: [string, number][] = [
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
];

/** "10m" for 600. */
export function durationText(value: unknown): unknown {
  if (typeof value !== "number") return value;
  const [unit, size] = DURATION_UNITS.find(([, each]) => value >= each && value % each === 0) ?? ["s", 1];
  return `${value / size}${unit}`;
}

export function readableTask(task: Task): Task {
  const made: Task = { ...task };
  if (isMapping(task.end)) made.end = readableTimes(task.end, ["timeout", "silence"]);
  if (isMapping(task.retries)) made.retries = readableTimes(task.retries, ["backoff"]);
  if (task.deliverables !== undefined) made.deliverables = asList(task.deliverables).map(readableDeliverable);
  if (task.verify !== undefined)
    made.verify = asList(task.verify).map((check) =>
      unwrapSingleKey(isMapping(check) ? readableTimes(check, ["timeout"]) : check, "run"),
    );
  if (task.inputs !== undefined)
    made.inputs = asList(task.inputs).map((input) =>
      unwrapSingleKey(
        isMapping(input) && "target" in input ? { ...input, target: workspaceRelative(input.target) } : input,
        "source",
      ),
    );
  if (isMapping(task.llm)) made.llm = unwrapSingleKey(task.llm, "model");
  if (isMapping(task.retries)) made.retries = unwrapSingleKey(made.retries, "times");
  return made;
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
    Object.entries(value).map(([name, each]) => [name, names.includes(name) ? durationText(each) : each]),
  );
}

function isMapping(value: unknown): value is Task {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
