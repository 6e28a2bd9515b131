/** Inputs of a task: text is sent with the task, files in a tar archive. */

import { packTar, type TarEntry } from "./tar";
import { type Task, toList } from "./task-yaml";

/** A file or a whole directory attached for one `source`. */
export interface AttachedFiles {
  directory: boolean;
  /** Paths relative to the directory; for a single file, its name. */
  files: { path: string; file: File }[];
}

export type Attachments = Readonly<Record<string, AttachedFiles>>;

export interface TaskInput {
  source?: string;
  git?: string;
  content?: string;
  target?: string;
}

export function taskInputs(task: Task): TaskInput[] {
  return toList(task.inputs).map((each) =>
    typeof each === "string" ? { source: each } : typeof each === "object" && each !== null ? (each as TaskInput) : {},
  );
}

/** Indexes of inputs without an attached file. */
export function unattachedInputs(inputs: TaskInput[], attachments: Attachments): number[] {
  return inputs.flatMap((input, index) => (input.source !== undefined && !attachments[input.source] ? [index] : []));
}

/** Task for validation without its files; indexes are kept, so that errors match their fields. */
export function taskForValidation(task: Task): Task {
  if (task.inputs === undefined) return task;
  const inputs = taskInputs(task).map((input, index) =>
    input.source === undefined
      ? input
      : { content: "", target: taskInputTarget(input) === "." ? `directory-${index}` : taskInputTarget(input) },
  );
  return { ...task, inputs };
}

export function taskInputTarget({ target, source }: TaskInput): string {
  return target ?? source?.replace(/\/+$/, "").split("/").pop() ?? "";
}

/** Content of the request: the task alone, or the task without inputs plus a tar archive. Throws for a bad path. */
export function prepareSubmission(task: Task, attachments: Attachments): { task: Task; bundle: Blob | null } {
  const inputs = taskInputs(task);
  if (!inputs.some((input) => input.source !== undefined)) return { task, bundle: null };
  const entries: TarEntry[] = inputs.flatMap((input) => {
    if (input.content !== undefined) return [{ path: taskInputTarget(input), content: new Blob([input.content]) }];
    const attached = attachments[input.source ?? ""];
    return (attached?.files ?? []).map(({ path, file }) => ({
      path: attached?.directory ? `${taskInputTarget(input)}/${path}` : taskInputTarget(input),
      content: file,
      modified: file.lastModified,
    }));
  });
  const { inputs: _, ...rest } = task;
  return { task: rest, bundle: packTar(entries) };
}

/** Attach files to inputs of the same name, or add new inputs. Returns the new sources. */
export function attachFilesToInputs(
  inputs: TaskInput[],
  attachments: Attachments,
  chosen: Record<string, AttachedFiles>,
): { attachments: Attachments; added: string[] } {
  const next: Record<string, AttachedFiles> = { ...attachments };
  const added: string[] = [];
  for (const [name, attached] of Object.entries(chosen)) {
    const matchingInput = inputs.find(
      ({ source }) => source !== undefined && !next[source] && source.replace(/\/+$/, "").split("/").pop() === name,
    );
    const source = matchingInput?.source ?? name;
    if (!matchingInput && !inputs.some((input) => input.source === name)) added.push(name);
    next[source] = attached;
  }
  return { attachments: next, added };
}
