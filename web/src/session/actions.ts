/** What people do with sessions. All of them raise `ApiError`. */

import { api } from "@/api/client";
import type { Approval } from "@/api/session-events";
import type { Schema } from "@/api/types";
import { listChanged } from "./list";

type Session = Schema<"Session">;
export type NewSession = Partial<Schema<"SessionBody">>;
export type Decision = Schema<"DecisionBody">;

const path = (id: string) => `/v1/sessions/${encodeURIComponent(id)}`;

async function listing<T>(asked: Promise<T>): Promise<T> {
  const answer = await asked;
  listChanged();
  return answer;
}

/** Begin a session. */
export function begin(settings: NewSession = {}): Promise<Session> {
  const headers = { "Idempotency-Key": crypto.randomUUID() };
  return listing(api.post<Session>("/v1/sessions", settings, { headers }));
}

/** Decide what waits, all of it or nothing. A 409 says that somebody was quicker. */
export async function decide(id: string, decisions: readonly Decision[]): Promise<Approval[]> {
  return (await api.post<{ items: Approval[] }>(`${path(id)}/resume`, { decisions })).items;
}

/** Stop what is under way. */
export function cancel(id: string): Promise<Session> {
  return api.post<Session>(`${path(id)}/cancel`);
}

/** Let the agent go on from where it is. */
export async function goOn(id: string): Promise<void> {
  await api.post(`${path(id)}/continue`);
}

/** A new session with what was said up to a message, or with all of it. */
export function fork(id: string, message?: string, title?: string): Promise<Session> {
  return listing(api.post<Session>(`${path(id)}/fork`, { message, title }));
}

export function rename(id: string, title: string): Promise<Session> {
  return change(id, { title });
}

/** Change settings; they count from the agent's next step on. */
export function change(id: string, patch: Omit<NewSession, "agent">): Promise<Session> {
  return listing(api.patch<Session>(path(id), patch));
}

export function remove(id: string): Promise<void> {
  return listing(api.delete(path(id)));
}
