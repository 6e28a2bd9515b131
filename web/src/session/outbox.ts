/** What people have written and the session has not told of yet. */

import { create } from "zustand";
import { ApiError, api } from "@/api/client";
import type { Message, SessionEvent } from "@/api/session-events";
import { sleep } from "@/api/streams";

export interface Outgoing {
  /** Under which it is sent: the server takes it once, however often it comes. */
  key: string;
  text: string;
  files: readonly File[];
  at: string;
  state: "sending" | "failed";
  error: unknown;
}

export interface Writing {
  text: string;
  files?: readonly File[];
}

const TRIES = 6;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8_000;
const NONE: readonly Outgoing[] = [];

const useBoxes = create<Record<string, readonly Outgoing[]>>(() => ({}));
/** The messages that the server has made of entries, and those that were told while any were under way; by session. */
const accepted = new Map<string, Map<string, string>>();
const told = new Map<string, Set<string>>();

export function useOutbox(id: string): readonly Outgoing[] {
  return useBoxes((boxes) => boxes[id] ?? NONE);
}

/** Say something to the agent. Gives the message once the server has it on disk, or null where it failed: see `retry`. */
export async function send(id: string, { text, files = [] }: Writing): Promise<Message | null> {
  const key = crypto.randomUUID();
  const entry: Outgoing = { key, text, files, at: new Date().toISOString(), state: "sending", error: null };
  change(id, (entries) => [...entries, entry]);
  return post(id, entry);
}

/** Send once more what failed. It is said once, even if it had arrived. */
export async function retry(id: string, key: string): Promise<Message | null> {
  const entry = useBoxes.getState()[id]?.find((each) => each.key === key);
  if (entry?.state !== "failed") return null;
  mark(id, key, { state: "sending", error: null });
  return post(id, entry);
}

/** Take back what failed, to write it anew. */
export function discard(id: string, key: string): void {
  change(id, (entries) => entries.filter((each) => each.key !== key));
}

async function post(id: string, { key, text, files }: Outgoing): Promise<Message | null> {
  try {
    const body = await bodyOf(text, files);
    const path = `/v1/sessions/${encodeURIComponent(id)}/messages`;
    const message = await patiently(() => api.post<Message>(path, body, { headers: { "Idempotency-Key": key } }));
    if (told.get(id)?.has(message.id) || !following.has(id)) discard(id, key);
    else accepted.set(id, (accepted.get(id) ?? new Map()).set(message.id, key));
    return message;
  } catch (error) {
    mark(id, key, { state: "failed", error });
    return null;
  }
}

/** Ask again while the connection is broken or the server busy, which does no harm under a key. */
async function patiently<T>(ask: () => Promise<T>): Promise<T> {
  for (let tried = 1; ; tried += 1) {
    try {
      return await ask();
    } catch (error) {
      const passing = error instanceof ApiError && (error.unreachable || error.status === 429 || error.status >= 500);
      if (!passing || tried === TRIES) throw error;
      const pause = Math.min(FIRST_PAUSE * 2 ** (tried - 1), LONGEST_PAUSE);
      await sleep(Math.max(pause, (error.retryAfter ?? 0) * 1000));
    }
  }
}

async function bodyOf(text: string, files: readonly File[]): Promise<object> {
  if (files.length === 0) return { text };
  const parts = await Promise.all(
    files.map(async (file) => ({
      type: "file",
      name: file.name,
      mime: file.type || "application/octet-stream",
      data: await base64(file),
    })),
  );
  return { content: text ? [{ type: "text", text }, ...parts] : parts };
}

async function base64(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const pieces: string[] = [];
  // In pieces of whole triples: a call takes only so many arguments.
  for (let place = 0; place < bytes.length; place += 0x6000) {
    pieces.push(btoa(String.fromCharCode(...bytes.subarray(place, place + 0x6000))));
  }
  return pieces.join("");
}

const following = new Set<string>();

/** Events of a session that is followed have come: what they tell of is under way no more. */
export function arrived(id: string, events: readonly SessionEvent[]): void {
  following.add(id);
  if (!useBoxes.getState()[id]?.length) return;
  const known = told.get(id) ?? new Set();
  told.set(id, known);
  for (const event of events) {
    if (event.type !== "message.received") continue;
    const message = event.data.message.id;
    known.add(message);
    const key = accepted.get(id)?.get(message);
    if (key) discard(id, key);
  }
}

/** Nobody follows a session any more: what the server has accepted is as good as told. */
export function unfollowed(id: string): void {
  following.delete(id);
  for (const key of accepted.get(id)?.values() ?? []) discard(id, key);
}

function mark(id: string, key: string, changes: Partial<Outgoing>): void {
  change(id, (entries) => entries.map((each) => (each.key === key ? { ...each, ...changes } : each)));
}

function change(id: string, how: (entries: readonly Outgoing[]) => readonly Outgoing[]): void {
  const entries = how(useBoxes.getState()[id] ?? NONE);
  useBoxes.setState({ [id]: entries });
  if (entries.length > 0) return;
  accepted.delete(id);
  told.delete(id);
}
