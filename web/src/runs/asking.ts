/** What is asked of the server about tasks and runs. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import type { SchemaNode } from "./form/fields";

export type Run = Schema<"RunItem">;
export type WholeRun = Schema<"RunSaid">;
export type Result = Schema<"paddock__api__run_messages__ResultSaid">;
export type State = Schema<"RunState">;

export const STATES: State[] = [
  "queued",
  "running",
  "succeeded",
  "failed",
  "timed_out",
  "over_budget",
  "lost",
  "cancelled",
];
/** How often is asked while something runs, and otherwise, since others may start runs too. */
const OFTEN = 3_000;
const SELDOM = 15_000;

export function isOver(state: State): boolean {
  return state !== "queued" && state !== "running";
}

export interface RunFilters {
  states: string[];
  name: string;
  group: string;
  page: number;
}

export const PAGE_SIZE = 50;

export function useRuns({ states, name, group, page }: RunFilters, pageSize = PAGE_SIZE) {
  return useQuery({
    queryKey: ["runs", "list", states, name, group, page, pageSize],
    queryFn: ({ signal }) =>
      api.get<Schema<"RunList">>("/v1/runs", { query: { state: states, name, group, page, pageSize }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.items.some((run) => !isOver(run.state)) ? OFTEN : SELDOM),
  });
}

export function useRun(id: string) {
  return useQuery({
    queryKey: ["runs", "one", id],
    queryFn: ({ signal }) => api.get<WholeRun>(`/v1/runs/${encodeURIComponent(id)}`, { signal }),
    refetchInterval: ({ state }) => (state.data && isOver(state.data.state) ? false : OFTEN),
  });
}

export function useTasks() {
  return useQuery({
    queryKey: ["runs", "tasks"],
    queryFn: ({ signal }) => api.get<Schema<"TaskList">>("/v1/tasks", { signal }),
  });
}

/** Sample tasks that ship with Paddock. */
export function useTemplates() {
  return useQuery({
    queryKey: ["runs", "templates"],
    queryFn: ({ signal }) => api.get<Schema<"TemplateItems">>("/v1/tasks/templates", { signal }),
  });
}

export function useTemplate(name: string | null) {
  return useQuery({
    queryKey: ["runs", "template", name],
    queryFn: ({ signal }) =>
      api.get<Schema<"TemplateSaid">>(`/v1/tasks/templates/${encodeURIComponent(name ?? "")}`, { signal }),
    enabled: name !== null,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** Run a template on its script. */
export function runTemplate(template: string): Promise<Schema<"RunsSaid">> {
  return api.post<Schema<"RunsSaid">>("/v1/runs", { template }, { headers: { "Idempotency-Key": newKey() } });
}

export function useTask(file: string | null) {
  return useQuery({
    queryKey: ["runs", "task", file],
    queryFn: ({ signal }) => api.get<Schema<"TaskSaid">>(`/v1/tasks/${encodeURIComponent(file ?? "")}`, { signal }),
    enabled: file !== null,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** What a task may be: its schema, as the server has it. */
export function useSchema() {
  return useQuery({
    queryKey: ["runs", "schema"],
    queryFn: ({ signal }) => api.get<SchemaNode>("/v1/tasks/schema", { signal }),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function cancelRun(id: string, hard: boolean): Promise<WholeRun> {
  return api.post<WholeRun>(`/v1/runs/${encodeURIComponent(id)}/cancel`, { hard });
}

export function retryRun(id: string): Promise<WholeRun> {
  return api.post<WholeRun>(`/v1/runs/${encodeURIComponent(id)}/retry`);
}

export function deleteRun(id: string): Promise<void> {
  return api.delete(`/v1/runs/${encodeURIComponent(id)}`);
}

/** A file that a run has brought back. Each part of its path is a name, whatever is in it. */
export function deliverable(run: string, path: string): string {
  return `/v1/runs/${encodeURIComponent(run)}/deliverables/${path.split("/").map(encodeURIComponent).join("/")}`;
}

/** Something that is new each time; also where the page is served without encryption. */
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
