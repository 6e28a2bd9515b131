/** Messages as they are read: results beside their calls, and what belongs together together. */

import type { CallPart, ChatMessage, Part, ResultPart } from "./asking";

export interface Turn {
  role: ChatMessage["role"];
  /** Which of the messages it begins with. */
  index: number;
  parts: Exclude<Part, ResultPart>[];
}

export interface Reading {
  turns: Turn[];
  /** Results by the id of their call. */
  results: ReadonlyMap<string, ResultPart>;
}

/** Results of tools, which are messages of their own in most formats, go to their calls. Those without one stand as a
 *  call that nobody knows. Messages of the same speaker that follow each other, as an agent's steps do, become one turn
 *  only where nothing was said in between. */
export function reading(messages: ChatMessage[]): Reading {
  const results = new Map<string, ResultPart>();
  const calls = new Set<string>();
  for (const { parts } of messages)
    for (const part of parts) {
      if (part.type === "toolResult") results.set(part.callId, part);
      if (part.type === "toolCall") calls.add(part.id);
    }
  const turns: Turn[] = [];
  for (const [index, { role, parts }] of messages.entries()) {
    const shown = parts.flatMap((part): Turn["parts"] => {
      if (part.type !== "toolResult") return [part];
      return calls.has(part.callId) ? [] : [orphan(part)];
    });
    if (shown.length === 0) continue;
    const last = turns.at(-1);
    if (last && role === "assistant" && last.role === "assistant") last.parts.push(...shown);
    else turns.push({ role, index, parts: shown });
  }
  return { turns, results };
}

function orphan(result: ResultPart): CallPart {
  return { type: "toolCall", id: result.callId, name: result.name ?? result.callId, arguments: "" };
}

/** All the words of some parts. */
export function wordsOf(parts: Part[]): string {
  return parts
    .map((part) => (part.type === "text" || part.type === "refusal" ? part.text : ""))
    .filter(Boolean)
    .join("\n\n");
}

/** What agents call a note of their own in the person's place: `<system-reminder>…</system-reminder>`. */
export function noteOf(text: string): string | null {
  return /^\s*<([A-Za-z][\w-]*)>[\s\S]*<\/\1>\s*$/.exec(text)?.[1] ?? null;
}

/** What the person said last: of the last message of theirs that has words. */
export function lastQuestion(messages: ChatMessage[]): string {
  for (const { role, parts } of messages.toReversed()) {
    const own = parts.filter((part) => part.type !== "text" || !noteOf(part.text));
    const words = role === "user" ? wordsOf(own).trim() : "";
    if (words) return words;
  }
  return "";
}

/** Pictures that may be shown: those whose bytes are here, in formats that are pictures and nothing else. */
export function pictureOf(part: Part): string | null {
  if (part.type !== "media" || part.kind !== "image" || !part.data) return null;
  const type = part.mediaType ?? "image/png";
  return /^image\/(png|jpeg|gif|webp)$/.test(type) ? `data:${type};base64,${part.data}` : null;
}

/** JSON with line breaks; what is none as it is. */
export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** How the bytes of an answer came, as points of a curve: seconds, and the share of all bytes that was there. */
export function arrival(pieces: [number, number][], most: number): { at: number; share: number }[] {
  const all = pieces.reduce((total, [, bytes]) => total + bytes, 0);
  const step = Math.max(1, Math.ceil(pieces.length / most));
  const points: { at: number; share: number }[] = [];
  let seen = 0;
  for (const [index, [at, bytes]] of pieces.entries()) {
    seen += bytes;
    if (index % step === 0 || index === pieces.length - 1) points.push({ at, share: all > 0 ? seen / all : 0 });
  }
  return points;
}
