/** English messages of the server without an error code, in the language of the page. */

import i18next from "i18next";
import { translateKey } from "./error-text";

/** Known messages and the keys of their texts below `errors.text`; named groups are values of the text. */
const PATTERNS: [RegExp, string][] = [
  [/^is missing; add it$/, "missing"],
  [/^must not be empty$/, "empty"],
  [/^must be at least (?<limit>.+), not (?<given>.+)$/s, "atLeast"],
  [/^must be more than (?<limit>.+), not (?<given>.+)$/s, "moreThan"],
  [/^must be at most (?<limit>.+), not (?<given>.+)$/s, "atMost"],
  [/^must be less than (?<limit>.+), not (?<given>.+)$/s, "lessThan"],
  [/^must be text, not (?<given>.+?)(?:; put it in quotes)?$/s, "text"],
  [/^must be a list, not (?<given>.+)$/s, "list"],
  [/^must be a mapping, not (?<given>.+)$/s, "mapping"],
  [/^must be a whole number, not (?<given>.+)$/s, "wholeNumber"],
  [/^must be a number, not (?<given>.+)$/s, "number"],
  [/^must be true or false, not (?<given>.+)$/s, "trueOrFalse"],
  [/^must be (?<choices>'.+'), not (?<given>.+?)(?:; did you mean '[^']*'\?)?$/s, "choice"],
  [/^may have (?<most>[\d,]+) (?:characters|entries), not (?<given>[\d,]+)$/, "tooLong"],
  [/^no such \w+; did you mean '(?<near>[^']*)'\?$/, "unknownNear"],
  [/^no such \w+; known: (?<known>.+)$/s, "unknown"],
  [/^(?<given>.+) is not a duration; write seconds/s, "duration"],
  [/^(?<given>.+) is not a size; write bytes/s, "size"],
  [/^(?<given>.+) is not a number of CPUs; write a number/s, "cpus"],
  [/^there is no such file$/, "noFile"],
  [/^nothing fits this pattern$/, "noMatch"],
  [/^there is nothing in it but links, pipes, sockets and the like$/, "onlySpecialFiles"],
  [/^(?:expired|its lifetime was over)$/, "sandboxExpired"],
  [/^idle$/, "sandboxIdle"],
  [/^unused for (?<seconds>\d+) s$/, "sandboxUnused"],
  [/^deleted$/, "sandboxDeleted"],
  [/^(?:out_of_memory|out of memory)$/, "sandboxOutOfMemory"],
  [/^(?:disk_full|the sandbox kept writing above its disk limit.*)$/s, "sandboxDiskFull"],
  [/^(?:lost|the sandbox ended while no server was running)$/, "sandboxLost"],
  [/^the sandbox's first process ended with code (?<code>-?\d+)$/, "sandboxExited"],
  [/^(?:killed|exited|the sandbox is gone|the sandbox has ended)$/, "sandboxGone"],
];

/** The message in the language of the page; a message without a translation is marked as the server's. */
export function serverText(message: string): string {
  for (const [pattern, name] of PATTERNS) {
    const found = pattern.exec(message);
    if (found) return translateKey(`errors.text.${name}`, message, { ...found.groups }) ?? message;
  }
  return i18next.t("errors.serverSays", { message });
}
