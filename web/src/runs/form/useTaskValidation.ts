/** Validates a task on the server while it is edited. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { taskForValidation } from "./input-bundle";
import type { Task } from "./task-yaml";

const VALIDATION_DELAY = 400;

/** Sent after a pause in typing. `isCurrent` is true if the result is for this exact task. */
export function useTaskValidation(task: Task | null) {
  const text = task ? JSON.stringify(taskForValidation(task)) : null;
  const [debouncedText, setDebouncedText] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setDebouncedText(text), VALIDATION_DELAY);
    return () => clearTimeout(timer);
  }, [text]);
  const query = useQuery({
    queryKey: ["runs", "verdict", debouncedText],
    queryFn: ({ signal }) =>
      api.post<Schema<"TaskValidationResponse">>(
        "/v1/tasks/validate",
        { task: JSON.parse(debouncedText ?? "{}") },
        { signal },
      ),
    enabled: debouncedText !== null && debouncedText !== "{}",
    placeholderData: keepPreviousData,
    staleTime: 30_000,
  });
  return { verdict: query.data ?? null, error: query.error, isCurrent: debouncedText === text && !query.isFetching };
}
