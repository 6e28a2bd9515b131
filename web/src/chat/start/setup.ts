/** What a new chat is made of, and what counts when nothing was chosen. */

import type { Schema } from "@/api/types";
import { fitsPattern } from "@/shell/patterns";
import type { ServerFacts } from "@/shell/server";

export interface Setup {
  agent: string;
  model: string;
  kinds: string[];
  /** Whether commands and changes of files are asked about. */
  ask: boolean;
}

type Kind = Pick<Schema<"KindItem">, "name" | "built">;
type Facts = Pick<ServerFacts, "agents" | "models" | "defaultKinds"> & { kinds: readonly Kind[] };

/** What was chosen last, as far as the server still has it; otherwise what the server has as its own. */
export function startWith(facts: Facts, last: Partial<Setup> | null): Setup {
  const agents = facts.agents.chat.filter((each) => each.ready).map((each) => each.name);
  const models = facts.models.items.map((each) => each.name);
  const known = new Set(facts.kinds.map((each) => each.name));
  const kept = (last?.kinds ?? []).filter((each) => known.has(each));
  return {
    agent: pick(last?.agent, agents) ?? pick(facts.agents.default, agents) ?? agents[0] ?? facts.agents.default,
    model:
      pick(last?.model, models) ??
      typed(last?.model, facts.models.patterns) ??
      pick(facts.models.default, models) ??
      models[0] ??
      "",
    kinds: last?.kinds && (kept.length > 0 || last.kinds.length === 0) ? kept : usual(facts),
    ask: last?.ask ?? true,
  };
}

/** The server's own kinds if they are built, since the first chat should not begin with a wait; else one that is. */
function usual({ kinds, defaultKinds }: Facts): string[] {
  const built = kinds.filter((each) => each.built).map((each) => each.name);
  const wanted = defaultKinds.filter((each) => built.includes(each));
  if (wanted.length) return wanted;
  const first = built.includes("linux") ? "linux" : built[0];
  return first ? [first] : [...defaultKinds];
}

function pick(name: string | null | undefined, among: readonly string[]): string | undefined {
  return name && among.includes(name) ? name : undefined;
}

function typed(name: string | undefined, patterns: readonly string[]): string | undefined {
  return name && fitsPattern(name, patterns) ? name : undefined;
}

/** As the server takes it. */
export function bodyOf(setup: Setup): Schema<"SessionBody"> {
  return {
    agent: setup.agent || null,
    model: setup.model || null,
    kinds: setup.kinds,
    policy: setup.ask ? null : { rules: [], allow_all: setup.kinds },
  };
}
