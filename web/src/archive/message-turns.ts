/** Groups messages for reading: results beside their calls, steps of one answer together. */

import type { CallPart, ChatMessage, MessagePart, ResultPart } from "./api";

export interface MessageTurn {
  role: ChatMessage["role"];
  /** Index of the first message of the turn. */
  index: number;
  parts: Exclude<MessagePart, ResultPart>[];
}

export interface GroupedMessages {
  turns: MessageTurn[];
  /** Results by call id. */
  results: ReadonlyMap<string, ResultPart>;
}

/**
 * Tool results are messages of their own in most formats; attach them to their calls. A result without a call becomes a
 * call of an unknown tool. Consecutive messages of one role, such as an agent's steps, become one turn.
 */
export function groupMessagesIntoTurns(messages: ChatMessage[]): GroupedMessages {
  const results = new Map<string, ResultPart>();
  const calls = new Set<string>();
  for (const { parts } of messages)
    for (const part of parts) {
      if (part.type === "toolResult") results.set(part.callId, part);
      if (part.type === "toolCall") calls.add(part.id);
    }
  const turns: MessageTurn[] = [];
  for (const [index, { role, parts }] of messages.entries()) {
    const shown = parts.flatMap((part): MessageTurn["parts"] => {
      if (part.type !== "toolResult") return [part];
      return calls.has(part.callId) ? [] : [callForOrphanResult(part)];
    });
    if (shown.length === 0) continue;
    const last = turns.at(-1);
    if (last && role === "assistant" && last.role === "assistant") last.parts.push(...shown);
    else turns.push({ role, index, parts: shown });
  }
  return { turns, results };
}

function callForOrphanResult(result: ResultPart): CallPart {
  return { type: "toolCall", id: result.callId, name: result.name ?? result.callId, arguments: "" };
}

/** Concatenated text of the parts. */
export function joinTextParts(parts: MessagePart[]): string {
  return parts
    .map((part) => (part.type === "text" || part.type === "refusal" ? part.text : ""))
    .filter(Boolean)
    .join("\n\n");
}

/** Text of a `<system-reminder>…</system-reminder>` that an agent adds to user messages. */
export function systemReminderText(text: string): string | null {
  return /^\s*<([A-Za-z][\w-]*)>[\s\S]*<\/\1>\s*$/.exec(text)?.[1] ?? null;
}

/** Text of the last user message that has any. */
export function lastUserText(messages: ChatMessage[]): string {
  for (const { role, parts } of messages.toReversed()) {
    const userParts = parts.filter((part) => part.type !== "text" || !systemReminderText(part.text));
    const userText = role === "user" ? joinTextParts(userParts).trim() : "";
    if (userText) return userText;
  }
  return "";
}

/** Data URL of an embedded image; plain image formats only. */
export function imageDataUrl(part: MessagePart): string | null {
  if (part.type !== "media" || part.kind !== "image" || !part.data) return null;
  const type = part.mediaType ?? "image/png";
  return /^image\/(png|jpeg|gif|webp)$/.test(type) ? `data:${type};base64,${part.data}` : null;
}

/** Indent JSON; return other text unchanged. */
export function prettyJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Points of the arrival curve: seconds, and the share of all bytes received. */
export function byteArrivalCurve(pieces: [number, number][], maxPoints: number): { at: number; share: number }[] {
  const totalBytes = pieces.reduce((total, [, bytes]) => total + bytes, 0);
  const step = Math.max(1, Math.ceil(pieces.length / maxPoints));
  const points: { at: number; share: number }[] = [];
  let receivedBytes = 0;
  for (const [index, [at, bytes]] of pieces.entries()) {
    receivedBytes += bytes;
    if (index % step === 0 || index === pieces.length - 1)
      points.push({ at, share: totalBytes > 0 ? receivedBytes / totalBytes : 0 });
  }
  return points;
}
