/** Hints about problems of the server. */

import type { Schema } from "@/api/types";
import type { ServerFacts } from "@/shell/status/server-facts";
import { formatBytes } from "@/ui/format/formats";

export interface HealthHint {
  id: "disk" | "keyRefused" | "unreached" | "failing" | "lost" | "scripts" | "kinds";
  values: Record<string, string | number>;
}

export function healthHints(facts: ServerFacts, llm: Schema<"ModelsResponse"> | undefined): HealthHint[] {
  const hints: HealthHint[] = [];
  if (facts.disk.free < facts.disk.needed)
    hints.push({ id: "disk", values: { free: formatBytes(facts.disk.free), needed: formatBytes(facts.disk.needed) } });
  for (const provider of llm?.providers ?? [])
    if (provider.keyRefusedAt)
      hints.push({
        id: "keyRefused",
        values: { name: provider.name, where: provider.foundIn ?? `llm.providers.${provider.name}.key` },
      });
    else if (provider.failing) hints.push({ id: "failing", values: { name: provider.name } });
    else if (provider.unreached)
      hints.push({ id: "unreached", values: { name: provider.name, problem: provider.listProblem ?? "" } });
  if (llm && llm.archive.lost > 0) hints.push({ id: "lost", values: { count: llm.archive.lost } });
  if (!facts.models.real) hints.push({ id: "scripts", values: {} });
  for (const kind of facts.kinds)
    if (!kind.built && facts.defaultKinds.includes(kind.name))
      hints.push({ id: "kinds", values: { kind: kind.title, image: kind.image } });
  return hints;
}
