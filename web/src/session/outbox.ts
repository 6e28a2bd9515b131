/** Messages written by the user that the session has not confirmed yet. */

import { create } from "zustand";
import { ApiError, api } from "@/api/client";
import { sleep } from "@/api/event-stream";
import type { SessionEvent, SessionMessage } from "@/api/session-events";

export interface OutgoingMessage {
  /** Idempotency key: the server accepts the message once, however often it is sent. */
  key: string;
  text: string;
  files: readonly File[];
  at: string;
  state: "sending" | "failed";
  error: unknown;
}

export interface DraftMessage {
  text: string;
  files?: readonly File[];
}

const MAX_ATTEMPTS = 6;
const MIN_RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 8_000;
const EMPTY_OUTBOX: readonly OutgoingMessage[] = [];

const useOutboxes = create<Record<string, readonly OutgoingMessage[]>>(() => ({}));
/** Accepted messages by key, and received messages while any are in flight; by session. */
const acceptedMessages = new Map<string, Map<string, string>>();
const receivedMessages = new Map<string, Set<string>>();

export function useOutbox(id: string): readonly OutgoingMessage[] {
  return useOutboxes((outboxes) => outboxes[id] ?? EMPTY_OUTBOX);
}

/** Send a message to the agent. Returns it once the server has stored it, or null on failure: see `retryMessage`. */
export async function sendMessage(id: string, { text, files = [] }: DraftMessage): Promise<SessionMessage | null> {
  const key = crypto.randomUUID();
  const entry: OutgoingMessage = { key, text, files, at: new Date().toISOString(), state: "sending", error: null };
  updateEntries(id, (entries) => [...entries, entry]);
  return postOutgoing(id, entry);
}

/** Send a failed message again. It appears once, even if it had arrived. */
export async function retryMessage(id: string, key: string): Promise<SessionMessage | null> {
  const entry = useOutboxes.getState()[id]?.find((each) => each.key === key);
  if (entry?.state !== "failed") return null;
  updateEntry(id, key, { state: "sending", error: null });
  return postOutgoing(id, entry);
}

/** Remove a failed message, to rewrite it. */
export function discardMessage(id: string, key: string): void {
  updateEntries(id, (entries) => entries.filter((each) => each.key !== key));
}

async function postOutgoing(id: string, { key, text, files }: OutgoingMessage): Promise<SessionMessage | null> {
  try {
    const body = await messageBody(text, files);
    const path = `/v1/sessions/${encodeURIComponent(id)}/messages`;
    const message = await retryWhileUnavailable(() =>
      api.post<SessionMessage>(path, body, { headers: { "Idempotency-Key": key } }),
    );
    if (receivedMessages.get(id)?.has(message.id) || !followedSessions.has(id)) discardMessage(id, key);
    else acceptedMessages.set(id, (acceptedMessages.get(id) ?? new Map()).set(message.id, key));
    return message;
  } catch (error) {
    updateEntry(id, key, { state: "failed", error });
    return null;
  }
}

/** Retry while the connection is down or the server busy; the idempotency key makes this safe. */
async function retryWhileUnavailable<T>(request: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await request();
    } catch (error) {
      const isTransient =
        error instanceof ApiError && (error.unreachable || error.status === 429 || error.status >= 500);
      if (!isTransient || attempt === MAX_ATTEMPTS) throw error;
      const retryDelay = Math.min(MIN_RETRY_DELAY_MS * 2 ** (attempt - 1), MAX_RETRY_DELAY_MS);
      await sleep(Math.max(retryDelay, (error.retryAfter ?? 0) * 1000));
    }
  }
}

async function messageBody(text: string, files: readonly File[]): Promise<object> {
  if (files.length === 0) return { text };
  const parts = await Promise.all(
    files.map(async (file) => ({
      type: "file",
      name: file.name,
      mime: file.type || "application/octet-stream",
      data: await fileToBase64(file),
    })),
  );
  return { content: text ? [{ type: "text", text }, ...parts] : parts };
}

async function fileToBase64(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const pieces: string[] = [];
  // In chunks of whole triples: a call takes only so many arguments.
  for (let offset = 0; offset < bytes.length; offset += 0x6000) {
    pieces.push(btoa(String.fromCharCode(...bytes.subarray(offset, offset + 0x6000))));
  }
  return pieces.join("");
}

const followedSessions = new Set<string>();

/** Mark messages as delivered once their events arrive. */
export function confirmDeliveredMessages(id: string, events: readonly SessionEvent[]): void {
  followedSessions.add(id);
  if (!useOutboxes.getState()[id]?.length) return;
  const received = receivedMessages.get(id) ?? new Set();
  receivedMessages.set(id, received);
  for (const event of events) {
    if (event.type !== "message.received") continue;
    const message = event.data.message.id;
    received.add(message);
    const key = acceptedMessages.get(id)?.get(message);
    if (key) discardMessage(id, key);
  }
}

/** Without a follower, an accepted message counts as delivered. */
export function stopConfirmingMessages(id: string): void {
  followedSessions.delete(id);
  for (const key of acceptedMessages.get(id)?.values() ?? []) discardMessage(id, key);
}

function updateEntry(id: string, key: string, changes: Partial<OutgoingMessage>): void {
  updateEntries(id, (entries) => entries.map((each) => (each.key === key ? { ...each, ...changes } : each)));
}

function updateEntries(id: string, update: (entries: readonly OutgoingMessage[]) => readonly OutgoingMessage[]): void {
  const entries = update(useOutboxes.getState()[id] ?? EMPTY_OUTBOX);
  useOutboxes.setState({ [id]: entries });
  if (entries.length > 0) return;
  acceptedMessages.delete(id);
  receivedMessages.delete(id);
}
