/** A task as the server keeps it, written the way a person would. */

import { listOf, type Task } from "./task-text";

const UNITS: [string, number][] = [
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
];

/** "10m" for 600. */
export function timeText(value: unknown): unknown {
  if (typeof value !== "number") return value;
  const [unit, size] = UNITS.find(([, each]) => value >= each && value % each === 0) ?? ["s", 1];
  return `${value / size}${unit}`;
}

export function friendly(task: Task): Task {
  const made: Task = { ...task };
  if (isMapping(task.end)) made.end = times(task.end, ["timeout", "silence"]);
  if (isMapping(task.retries)) made.retries = times(task.retries, ["backoff"]);
  if (task.deliverables !== undefined) made.deliverables = listOf(task.deliverables).map(deliverable);
  if (task.verify !== undefined)
    made.verify = listOf(task.verify).map((check) =>
      alone(isMapping(check) ? times(check, ["timeout"]) : check, "run"),
    );
  if (task.inputs !== undefined)
    made.inputs = listOf(task.inputs).map((input) =>
      alone(isMapping(input) && "target" in input ? { ...input, target: within(input.target) } : input, "source"),
    );
  if (isMapping(task.llm)) made.llm = alone(task.llm, "model");
  if (isMapping(task.retries)) made.retries = alone(made.retries, "times");
  return made;
}

function deliverable(value: unknown): unknown {
  if (typeof value === "string") return within(value);
  return isMapping(value) ? alone({ ...value, path: within(value.path) }, "path") : value;
}

function within(path: unknown): unknown {
  return typeof path === "string" ? path.replace(/^\/workspace\/(?=.)/, "") : path;
}

/** The value itself where a mapping has no other. */
function alone(value: unknown, key: string): unknown {
  return isMapping(value) && key in value && Object.keys(value).length === 1 ? value[key] : value;
}

function times(value: Task, names: string[]): Task {
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [name, names.includes(name) ? timeText(each) : each]),
  );
}

function isMapping(value: unknown): value is Task {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
