/** Choices for task fields, from the server's facts. */

import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import type { ServerFacts } from "@/shell/status/server-facts";

export interface FieldChoice {
  value: string;
  label: string;
}

export interface FieldChoices {
  options: FieldChoice[];
  /** Whether other names are allowed, too. */
  allowsOther: boolean;
  /** Name that is used when none is chosen, if known. */
  defaultValue?: string;
}

/** Choices by field path. `model` is the default model of the run. */
export function useFieldChoices(server: ServerFacts | undefined, model?: string): Record<string, FieldChoices> {
  const { t } = useTranslation();
  const images = useQuery({
    queryKey: ["runs", "images"],
    queryFn: ({ signal }) => api.get<Schema<"ImageListResponse">>("/v1/images", { signal }),
  });
  const built = new Set(images.data?.items.filter((each) => each.current).map((each) => each.name));
  const marked = (name: string, ready: boolean) => ({
    value: name,
    label: ready ? name : t("runs.form.unbuilt", { name }),
  });
  const models = server?.models.items.filter(({ name }) => !name.includes("*")) ?? [];
  const names = [...new Set([...(images.data?.items.map(({ name }) => name) ?? []), ...(images.data?.known ?? [])])];
  return {
    agent: {
      options: server?.agents.tasks.map(({ name, built }) => marked(name, built !== false)) ?? [],
      allowsOther: false,
    },
    "llm.model": {
      options: models.map(({ name, script }) => ({
        value: name,
        label: script ? t("runs.form.scripted", { name }) : name,
      })),
      allowsOther: true,
      defaultValue: model,
    },
    kind: { options: server?.kinds.map(({ name, built }) => marked(name, built)) ?? [], allowsOther: false },
    image: { options: names.sort().map((name) => marked(name, name === "host" || built.has(name))), allowsOther: true },
  };
}
