/** Setup of a new chat and its defaults. */

import type { Schema } from "@/api/types";
import type { NetworkDraft } from "@/sandbox-panel/network/network-policy";
import { matchesModelPattern } from "@/shell/models/model-patterns";
import type { ServerFacts } from "@/shell/status/server-facts";

export interface ChatSetup {
  agent: string;
  model: string;
  kinds: string[];
  /** Whether the agent asks before it runs commands or changes files. */
  ask: boolean;
  /** Network of its sandboxes; null for that of each kind. */
  network: NetworkDraft | null;
}

type Kind = Pick<Schema<"KindResponse">, "name" | "built">;
type SetupFacts = Pick<ServerFacts, "agents" | "models" | "defaultKinds"> & { kinds: readonly Kind[] };

/** The last choice as far as the server still offers it, else the server's defaults. */
export function initialChatSetup(facts: SetupFacts, last: Partial<ChatSetup> | null): ChatSetup {
  const agents = facts.agents.chat.filter((each) => each.ready).map((each) => each.name);
  const models = facts.models.items.map((each) => each.name);
  const offeredKinds = new Set(facts.kinds.map((each) => each.name));
  const keptKinds = (last?.kinds ?? []).filter((each) => offeredKinds.has(each));
  return {
    agent:
      pickAvailable(last?.agent, agents) ??
      pickAvailable(facts.agents.default, agents) ??
      agents[0] ??
      facts.agents.default,
    model:
      pickAvailable(last?.model, models) ??
      typedModel(last?.model, facts.models.patterns) ??
      pickAvailable(facts.models.default, models) ??
      models[0] ??
      "",
    kinds: last?.kinds && (keptKinds.length > 0 || last.kinds.length === 0) ? keptKinds : builtKinds(facts),
    ask: last?.ask ?? true,
    network: last?.network ?? null,
  };
}

/** The server's default kinds if their images are built, else one that is, so that the first chat starts at once. */
function builtKinds({ kinds, defaultKinds }: SetupFacts): string[] {
  const built = kinds.filter((each) => each.built).map((each) => each.name);
  const builtDefaults = defaultKinds.filter((each) => built.includes(each));
  if (builtDefaults.length) return builtDefaults;
  const first = built.includes("linux") ? "linux" : built[0];
  return first ? [first] : [...defaultKinds];
}

function pickAvailable(name: string | null | undefined, among: readonly string[]): string | undefined {
  return name && among.includes(name) ? name : undefined;
}

function typedModel(name: string | undefined, patterns: readonly string[]): string | undefined {
  return name && matchesModelPattern(name, patterns) ? name : undefined;
}

/** Body of the request that starts the session. */
export async function startSessionRequestBody(setup: ChatSetup): Promise<Schema<"StartSessionRequest">> {
  // Loaded late, since most chats have the network of their kinds.
  const policies = setup.network && (await import("@/sandbox-panel/network/network-policy"));
  return {
    agent: setup.agent || null,
    model: setup.model || null,
    kinds: setup.kinds,
    network: setup.network ? policies?.policyFromDraft(setup.network) : undefined,
    policy: setup.ask ? null : { rules: [], allow_all: setup.kinds },
  };
}
