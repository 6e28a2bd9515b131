/** Requests about sessions. All throw `ApiError`. */

import { api } from "@/api/client";
import type { Approval } from "@/api/session-events";
import type { Schema } from "@/api/types";
import { refreshSessionList } from "./session-list";

type Session = Schema<"Session">;
export type NewSession = Partial<Schema<"StartSessionRequest">>;
export type ApprovalDecision = Schema<"DecisionRequest">;

const sessionPath = (id: string) => `/v1/sessions/${encodeURIComponent(id)}`;

async function refreshingList<T>(request: Promise<T>): Promise<T> {
  const answer = await request;
  refreshSessionList();
  return answer;
}

/** Start a session. */
export function startSession(settings: NewSession = {}): Promise<Session> {
  const headers = { "Idempotency-Key": crypto.randomUUID() };
  return refreshingList(api.post<Session>("/v1/sessions", settings, { headers }));
}

/** Decide pending approvals, all or nothing. A 409 means that another person was faster. */
export async function decideApprovals(id: string, decisions: readonly ApprovalDecision[]): Promise<Approval[]> {
  return (await api.post<{ items: Approval[] }>(`${sessionPath(id)}/resume`, { decisions })).items;
}

/** Stop the current turn. */
export function cancelTurn(id: string): Promise<Session> {
  return api.post<Session>(`${sessionPath(id)}/cancel`);
}

/** Let the agent continue where it stopped. */
export async function continueTurn(id: string): Promise<void> {
  await api.post(`${sessionPath(id)}/continue`);
}

/** New session with the history up to a message, or all of it. */
export function forkSessionAt(id: string, message?: string, title?: string): Promise<Session> {
  return refreshingList(api.post<Session>(`${sessionPath(id)}/fork`, { message, title }));
}

export function renameSession(id: string, title: string): Promise<Session> {
  return changeSession(id, { title });
}

/** Change settings; they apply from the agent's next step. */
export function changeSession(id: string, patch: Omit<NewSession, "agent">): Promise<Session> {
  return refreshingList(api.patch<Session>(sessionPath(id), patch));
}

export function deleteSession(id: string): Promise<void> {
  return refreshingList(api.delete(sessionPath(id)));
}
