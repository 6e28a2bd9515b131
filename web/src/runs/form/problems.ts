/** What the server finds wrong with a task, told apart by field. */

export interface Problem {
  /** The way to it, such as `["inputs", 0, "target"]`; empty for the task as a whole. */
  path: (string | number)[];
  message: string;
}

/** Complaints stand one after another, `FIELD: MESSAGE; FIELD: MESSAGE`. A message may have semicolons of its own, so
 *  only what begins with one of `names` counts as the next one. */
export function problemsOf(error: string, names: Iterable<string>): Problem[] {
  const known = new Set(names);
  const problems: Problem[] = [];
  for (const piece of error.split(/; |\n/)) {
    const match = /^([A-Za-z_$][\w$-]*(?:\.[\w$-]+)*): (.*)$/s.exec(piece);
    const way = match?.[1]?.split(".") ?? [];
    const last = problems.at(-1);
    if (match && known.has(way[0] ?? "")) {
      problems.push({ path: way.map((step) => (/^\d+$/.test(step) ? Number(step) : step)), message: match[2] ?? "" });
    } else if (last) last.message += `; ${piece}`;
    else problems.push({ path: [], message: piece });
  }
  return problems;
}

/** The first complaint about a field, or about something in it. */
export function problemAt(problems: Problem[], path: (string | number)[]): string | null {
  const found = problems.find((each) => path.every((step, index) => each.path[index] === step));
  if (!found) return null;
  const rest = found.path.slice(path.length).join(".");
  return rest ? `${rest}: ${found.message}` : found.message;
}
