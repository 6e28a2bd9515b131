/** What somebody should do about how the server is. */

import type { Schema } from "@/api/types";
import type { ServerFacts } from "@/shell/server";
import { size } from "@/ui/Time";

export interface Hint {
  id: "disk" | "keyRefused" | "unreached" | "failing" | "lost" | "scripts" | "kinds";
  values: Record<string, string | number>;
}

export function hintsOf(facts: ServerFacts, llm: Schema<"ModelsSaid"> | undefined): Hint[] {
  const hints: Hint[] = [];
  if (facts.disk.free < facts.disk.needed)
    hints.push({ id: "disk", values: { free: size(facts.disk.free), needed: size(facts.disk.needed) } });
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
