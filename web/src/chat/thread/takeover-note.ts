/** Short version of the note that tells the agent what a person did in a sandbox. */

import i18next from "i18next";

const NOTE = /^(.{1,200}) had mouse and keyboard of the \S+ sandbox, and has handed them back\. /;
const PERIOD = /^(\d+ (?:s|minutes)): ([^\n]*?)\.(?= |$)/;
const ACTION = [
  ["clicks", /^(\d+) mouse click/],
  ["wheel", /^(\d+) turn/],
  ["typed", /^(\d+) character/],
  ["pasted", /^(\d+) text/],
  ["keys", /^keys: (.+)$/],
  ["terminal", /^typed in the terminal (.+) \([^()]*\)$/],
] as const;

/** "You handed back after 7 s. Nothing was clicked or typed."; null for other notes. */
export function describeTakeoverNote(note: string, me: string | undefined): string | null {
  const found = NOTE.exec(note);
  if (!found) return null;
  const who = found[1] === me ? i18next.t("chat.handed.you") : found[1];
  const times: string[] = [];
  const done: string[] = [];
  let rest = note.slice(found[0].length);
  for (let period = PERIOD.exec(rest); period; period = PERIOD.exec(rest)) {
    const [whole, time = "", did = ""] = period;
    times.push(time.replace("minutes", i18next.t("common.units.min")));
    done.push(...did.split("; ").flatMap(activityPhrases));
    rest = rest.slice(whole.length).replace(/^ Then: /, "");
  }
  if (!times.length) return i18next.t("chat.handed.back", { who });
  const what = done.length ? i18next.t("chat.handed.did", { what: done.join(", ") }) : i18next.t("chat.handed.nothing");
  return i18next.t("chat.handed.after", { who, time: times.join(" + "), what });
}

function activityPhrases(part: string): string[] {
  for (const [name, pattern] of ACTION) {
    const found = pattern.exec(part);
    if (found) return [i18next.t(`chat.handed.${name}`, { count: Number(found[1]) || 0, what: found[1] })];
  }
  return [];
}
