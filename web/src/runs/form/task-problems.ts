/** Parses the server's validation errors by field. */

export interface TaskProblem {
  /** Path of the field, such as `["inputs", 0, "target"]`; empty for the whole task. */
  path: (string | number)[];
  message: string;
}

/**
 * Errors are joined as `FIELD: MESSAGE; FIELD: MESSAGE`. Messages may contain semicolons, so an error starts only at
 * one of `names`.
 */
export function parseTaskProblems(error: string, names: Iterable<string>): TaskProblem[] {
  const knownNames = new Set(names);
  const problems: TaskProblem[] = [];
  for (const piece of error.split(/; |\n/)) {
    const match = /^([A-Za-z_$][\w$-]*(?:\.[\w$-]+)*): (.*)$/s.exec(piece);
    const path = match?.[1]?.split(".") ?? [];
    const last = problems.at(-1);
    if (match && knownNames.has(path[0] ?? "")) {
      problems.push({ path: path.map((step) => (/^\d+$/.test(step) ? Number(step) : step)), message: match[2] ?? "" });
    } else if (last) last.message += `; ${piece}`;
    else problems.push({ path: [], message: piece });
  }
  return problems;
}

export interface TaskFileProblem {
  file: string;
  line: number | null;
  /** Path of the field; empty for the whole file. */
  field: string;
  message: string;
}

const FILE_PROBLEM =
  /^(?:(?<file>.+?\.(?:ya?ml|json))(?::(?<line>\d+))?: )?(?:(?<field>[A-Za-z_$][\w$-]*(?:\.[\w$-]+)*): )?(?<message>.*)$/;

/** Errors of a task file: one per line, as `FILE:LINE: FIELD: MESSAGE`. */
export function parseTaskFileProblems(error: string): TaskFileProblem[] {
  return error.split("\n").map((text) => {
    const { file = "", line, field = "", message = text } = FILE_PROBLEM.exec(text)?.groups ?? {};
    return { file, line: line ? Number(line) : null, field, message };
  });
}

/** The first problem of a field or of anything below it. */
export function problemAtPath(problems: TaskProblem[], path: (string | number)[]): string | null {
  const found = problems.find((each) => path.every((step, index) => each.path[index] === step));
  if (!found) return null;
  const rest = found.path.slice(path.length).join(".");
  return rest ? `${rest}: ${found.message}` : found.message;
}
