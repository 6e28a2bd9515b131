/** CPU and memory use of a sandbox. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, api } from "@/api/client";
import { SANDBOXES_QUERY, sandboxApiPath } from "./actions";

export interface MetricSample {
  at: string;
  /** CPUs in use; null if not measurable. */
  cpu: number | null;
  /** Bytes in use. */
  memory: number | null;
}

export interface MetricHistory {
  samples: MetricSample[];
  cpuLimit: number | null;
  memoryLimit: number | null;
}

const HISTORY_MS = 40;
const POLL_MS = 4_000;

/** Append new samples to the history without duplicates. */
export function mergeMetricHistory(before: MetricHistory | undefined, latest: MetricHistory): MetricHistory {
  const samplesByTime = new Map((before?.samples ?? []).map((sample) => [sample.at, sample]));
  for (const sample of latest.samples) samplesByTime.set(sample.at, sample);
  const samples = [...samplesByTime.values()].sort((one, other) => one.at.localeCompare(other.at)).slice(-HISTORY_MS);
  return { ...latest, samples };
}

/** Poll while `active`. A server without metrics is polled only once. */
export function useSandboxMetrics(id: string, active: boolean) {
  const queries = useQueryClient();
  const queryKey = [SANDBOXES_QUERY, "metrics", id];
  return useQuery({
    queryKey,
    queryFn: async ({ signal }) => {
      const answer = await api.get<MetricHistory>(`${sandboxApiPath(id)}/metrics`, { signal });
      return mergeMetricHistory(queries.getQueryData<MetricHistory>(queryKey), answer);
    },
    enabled: active,
    staleTime: POLL_MS - 500,
    refetchInterval: (query) =>
      query.state.error instanceof ApiError && query.state.error.status === 404 ? false : POLL_MS,
    retry: false,
  });
}
