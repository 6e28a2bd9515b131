/** Short version of the note to the agent about a person's actions in a sandbox. */

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
  const person = found[1] === me ? i18next.t("chat.handed.you") : found[1];
  const times: string[] = [];
  const phrases: string[] = [];
  let rest = note.slice(found[0].length);
  for (let period = PERIOD.exec(rest); period; period = PERIOD.exec(rest)) {
    const [matchedText, time = "", activity = ""] = period;
    const [amount, unit] = time.split(" ");
    times.push(`${amount} ${i18next.t(unit === "s" ? "common.units.s" : "common.units.min")}`);
    phrases.push(...activity.split("; ").flatMap(activityPhrases));
    rest = rest.slice(matchedText.length).replace(/^ Then: /, "");
  }
  if (!times.length) return i18next.t("chat.handed.back", { who: person });
  const activityText = phrases.length
    ? i18next.t("chat.handed.did", { what: phrases.join(i18next.t("chat.handed.separator")) })
    : i18next.t("chat.handed.nothing");
  return i18next.t("chat.handed.after", { who: person, time: times.join(" + "), what: activityText });
}

function activityPhrases(part: string): string[] {
  for (const [name, pattern] of ACTION) {
    const found = pattern.exec(part);
    if (found) return [i18next.t(`chat.handed.${name}`, { count: Number(found[1]) || 0, what: found[1] })];
  }
  return [];
}
