import type { Schema } from "@/api/types";

/** What answers the model requests of a task's runs. */
export type AnsweringModel = { scripted: true } | { scripted: false; models: string[] };

/** Return a script or the real models, as the server reports them; null for a task without a model. */
export function answeringModel(
  verdict: Pick<Schema<"TaskValidationResponse">, "issues" | "models"> | null,
): AnsweringModel | null {
  if (verdict?.issues.some(({ code }) => code === "SCRIPT_ANSWERS")) return { scripted: true };
  const models = verdict?.models ?? [];
  return models.length > 0 ? { scripted: false, models } : null;
}
