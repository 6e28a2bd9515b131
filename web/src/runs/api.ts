/** API of tasks and runs. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import type { SchemaNode } from "./form/task-schema-fields";

export type Run = Schema<"RunSummaryResponse">;
export type RunDetail = Schema<"RunResponse">;
export type RunResult = Schema<"RunResultResponse">;
export type RunState = Schema<"RunState">;

export const RUN_STATES: RunState[] = [
  "queued",
  "running",
  "succeeded",
  "failed",
  "timed_out",
  "over_budget",
  "lost",
  "cancelled",
];
/** Poll intervals: while runs are active, and otherwise, since others may start runs too. */
const ACTIVE_POLL_MS = 3_000;
const IDLE_POLL_MS = 15_000;

export function isRunOver(state: RunState): boolean {
  return state !== "queued" && state !== "running";
}

export interface RunFilters {
  states: string[];
  name: string;
  group: string;
  page: number;
}

export const RUN_PAGE_SIZE = 50;

export function useRuns({ states, name, group, page }: RunFilters, pageSize = RUN_PAGE_SIZE) {
  return useQuery({
    queryKey: ["runs", "list", states, name, group, page, pageSize],
    queryFn: ({ signal }) =>
      api.get<Schema<"RunListResponse">>("/v1/runs", { query: { state: states, name, group, page, pageSize }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) =>
      state.data?.items.some((run) => !isRunOver(run.state)) ? ACTIVE_POLL_MS : IDLE_POLL_MS,
  });
}

export function useRun(id: string) {
  return useQuery({
    queryKey: ["runs", "one", id],
    queryFn: ({ signal }) => api.get<RunDetail>(`/v1/runs/${encodeURIComponent(id)}`, { signal }),
    refetchInterval: ({ state }) => (state.data && isRunOver(state.data.state) ? false : ACTIVE_POLL_MS),
  });
}

export function useTasks() {
  return useQuery({
    queryKey: ["runs", "tasks"],
    queryFn: ({ signal }) => api.get<Schema<"TaskListResponse">>("/v1/tasks", { signal }),
  });
}

/** Sample tasks that ship with Paddock. */
export function useTaskTemplates() {
  return useQuery({
    queryKey: ["runs", "templates"],
    queryFn: ({ signal }) => api.get<Schema<"TaskTemplateListResponse">>("/v1/tasks/templates", { signal }),
  });
}

export function useTaskTemplate(name: string | null) {
  return useQuery({
    queryKey: ["runs", "template", name],
    queryFn: ({ signal }) =>
      api.get<Schema<"TaskTemplateResponse">>(`/v1/tasks/templates/${encodeURIComponent(name ?? "")}`, { signal }),
    enabled: name !== null,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** Run a template with its scripted model. */
export function runTaskTemplate(template: string): Promise<Schema<"CreateRunsResponse">> {
  return api.post<Schema<"CreateRunsResponse">>(
    "/v1/runs",
    { template },
    { headers: { "Idempotency-Key": newIdempotencyKey() } },
  );
}

export function useTask(file: string | null) {
  return useQuery({
    queryKey: ["runs", "task", file],
    queryFn: ({ signal }) => api.get<Schema<"TaskResponse">>(`/v1/tasks/${encodeURIComponent(file ?? "")}`, { signal }),
    enabled: file !== null,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** JSON schema of tasks, from the server. */
export function useTaskSchema() {
  return useQuery({
    queryKey: ["runs", "schema"],
    queryFn: ({ signal }) => api.get<SchemaNode>("/v1/tasks/schema", { signal }),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function cancelRun(id: string, hard: boolean): Promise<RunDetail> {
  return api.post<RunDetail>(`/v1/runs/${encodeURIComponent(id)}/cancel`, { hard });
}

export function retryRun(id: string): Promise<RunDetail> {
  return api.post<RunDetail>(`/v1/runs/${encodeURIComponent(id)}/retry`);
}

export function deleteRun(id: string): Promise<void> {
  return api.delete(`/v1/runs/${encodeURIComponent(id)}`);
}

/** API path of an output file, with every segment escaped. */
export function deliverablePath(run: string, path: string): string {
  return `/v1/runs/${encodeURIComponent(run)}/deliverables/${path.split("/").map(encodeURIComponent).join("/")}`;
}

/** Random key; also works on pages served without TLS. */
export function newIdempotencyKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
