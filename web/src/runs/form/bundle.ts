/** Inputs of a task on their way to the server: text goes with the task, files in a tar beside it. */

import { type Entry, packed } from "./tar";
import { listOf, type Task } from "./task-text";

/** A file, or all of a directory, which a person gave for one `source`. */
export interface Attached {
  directory: boolean;
  /** Paths are relative to the directory; of a file alone, its name. */
  files: { path: string; file: File }[];
}

export type Attachments = Readonly<Record<string, Attached>>;

export interface Input {
  source?: string;
  git?: string;
  content?: string;
  target?: string;
}

export function inputsOf(task: Task): Input[] {
  return listOf(task.inputs).map((each) =>
    typeof each === "string" ? { source: each } : typeof each === "object" && each !== null ? (each as Input) : {},
  );
}

/** Sources that nobody has given a file for. */
export function unattached(inputs: Input[], attachments: Attachments): number[] {
  return inputs.flatMap((input, index) => (input.source !== undefined && !attachments[input.source] ? [index] : []));
}

/** A task whose inputs the server can look at without their files. Each keeps its place, so that complaints fit. */
export function checkable(task: Task): Task {
  if (task.inputs === undefined) return task;
  const inputs = inputsOf(task).map((input, index) =>
    input.source === undefined
      ? input
      : { content: "", target: targetOf(input) === "." ? `directory-${index}` : targetOf(input) },
  );
  return { ...task, inputs };
}

export function targetOf({ target, source }: Input): string {
  return target ?? source?.replace(/\/+$/, "").split("/").pop() ?? "";
}

/** What is to be sent: the task alone, or without its inputs and a tar with them. Raises an `Error` for a bad path. */
export function prepared(task: Task, attachments: Attachments): { task: Task; bundle: Blob | null } {
  const inputs = inputsOf(task);
  if (!inputs.some((input) => input.source !== undefined)) return { task, bundle: null };
  const entries: Entry[] = inputs.flatMap((input) => {
    if (input.content !== undefined) return [{ path: targetOf(input), content: new Blob([input.content]) }];
    const attached = attachments[input.source ?? ""];
    return (attached?.files ?? []).map(({ path, file }) => ({
      path: attached?.directory ? `${targetOf(input)}/${path}` : targetOf(input),
      content: file,
      modified: file.lastModified,
    }));
  });
  const { inputs: _, ...rest } = task;
  return { task: rest, bundle: packed(entries) };
}

/** Takes files in: for a source of the same name that lacks one, or as a new input. Gives the new sources. */
export function attach(
  inputs: Input[],
  attachments: Attachments,
  given: Record<string, Attached>,
): { attachments: Attachments; added: string[] } {
  const next: Record<string, Attached> = { ...attachments };
  const added: string[] = [];
  for (const [name, attached] of Object.entries(given)) {
    const waits = inputs.find(
      ({ source }) => source !== undefined && !next[source] && source.replace(/\/+$/, "").split("/").pop() === name,
    );
    const source = waits?.source ?? name;
    if (!waits && !inputs.some((input) => input.source === name)) added.push(name);
    next[source] = attached;
  }
  return { attachments: next, added };
}
