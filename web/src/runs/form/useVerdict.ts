/** What the server says about a task while it is being written. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { checkable } from "./bundle";
import type { Task } from "./task-text";

const PAUSE = 400;

/** Asked once nobody has typed for a moment. `settled` tells whether it is about this very task. */
export function useVerdict(task: Task | null) {
  const text = task ? JSON.stringify(checkable(task)) : null;
  const [asked, setAsked] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(text), PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  const query = useQuery({
    queryKey: ["runs", "verdict", asked],
    queryFn: ({ signal }) =>
      api.post<Schema<"Verdict">>("/v1/tasks/validate", { task: JSON.parse(asked ?? "{}") }, { signal }),
    enabled: asked !== null && asked !== "{}",
    placeholderData: keepPreviousData,
    staleTime: 30_000,
  });
  return { verdict: query.data ?? null, error: query.error, settled: asked === text && !query.isFetching };
}
