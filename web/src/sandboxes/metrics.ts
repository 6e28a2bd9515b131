/** How much of its computer a sandbox uses. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, api } from "@/api/client";
import { pathOf, SANDBOXES } from "./actions";

export interface Sample {
  at: string;
  /** CPUs in use; null if it cannot be measured. */
  cpu: number | null;
  /** Bytes in use. */
  memory: number | null;
}

export interface Measured {
  samples: Sample[];
  cpuLimit: number | null;
  memoryLimit: number | null;
}

const KEPT = 40;
const EVERY = 4_000;

/** What is measured now, after what was measured before. Nothing is measured twice. */
export function joined(before: Measured | undefined, now: Measured): Measured {
  const known = new Map((before?.samples ?? []).map((sample) => [sample.at, sample]));
  for (const sample of now.samples) known.set(sample.at, sample);
  const samples = [...known.values()].sort((one, other) => one.at.localeCompare(other.at)).slice(-KEPT);
  return { ...now, samples };
}

/** Ask for it while `active`. A server that cannot measure is asked once. */
export function useMetrics(id: string, active: boolean) {
  const queries = useQueryClient();
  const queryKey = [SANDBOXES, "metrics", id];
  return useQuery({
    queryKey,
    queryFn: async ({ signal }) => {
      const answer = await api.get<Measured>(`${pathOf(id)}/metrics`, { signal });
      return joined(queries.getQueryData<Measured>(queryKey), answer);
    },
    enabled: active,
    staleTime: EVERY - 500,
    refetchInterval: (query) =>
      query.state.error instanceof ApiError && query.state.error.status === 404 ? false : EVERY,
    retry: false,
  });
}
