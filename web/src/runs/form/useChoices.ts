/** What a task's fields can be chosen from: names that this server has. */

import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import type { ServerFacts } from "@/shell/server";

export interface Choice {
  value: string;
  label: string;
}

export interface Choices {
  options: Choice[];
  /** Whether a name that is not among them may be right, too. */
  free: boolean;
  /** The name that is used where none is chosen, if it is known. */
  otherwise?: string;
}

/** By path of the field. `model` is the one that a run uses where the task names none. */
export function useChoices(server: ServerFacts | undefined, model?: string): Record<string, Choices> {
  const { t } = useTranslation();
  const images = useQuery({
    queryKey: ["runs", "images"],
    queryFn: ({ signal }) => api.get<Schema<"ImageList">>("/v1/images", { signal }),
  });
  const built = new Set(images.data?.items.filter((each) => each.current).map((each) => each.name));
  const marked = (name: string, ready: boolean) => ({
    value: name,
    label: ready ? name : t("runs.form.unbuilt", { name }),
  });
  const models = server?.models.items.filter(({ name }) => !name.includes("*")) ?? [];
  const names = [...new Set([...(images.data?.items.map(({ name }) => name) ?? []), ...(images.data?.known ?? [])])];
  return {
    agent: { options: server?.agents.tasks.map(({ name, built }) => marked(name, built !== false)) ?? [], free: false },
    "llm.model": {
      options: models.map(({ name, script }) => ({
        value: name,
        label: script ? t("runs.form.scripted", { name }) : name,
      })),
      free: true,
      otherwise: model,
    },
    kind: { options: server?.kinds.map(({ name, built }) => marked(name, built)) ?? [], free: false },
    image: { options: names.sort().map((name) => marked(name, name === "host" || built.has(name))), free: true },
  };
}
