/** Commands of a run's agent, for the terminal of its sandbox. */

import {
  type AgentCommand,
  commandFromCall,
  MAX_COMMANDS,
  MAX_OUTPUT_CHARACTERS,
} from "@/sandbox-panel/terminal/agent-commands";
import type { RunDetail } from "./api";
import type { RunCallItem, RunFeed, RunFeedItem } from "./run-feed";

/** Commands of the current attempt, oldest first: a task without an agent has one, its entrypoint. */
export function agentCommandsOfRun(feed: RunFeed, task: RunDetail["task"] | undefined): AgentCommand[] {
  // Earlier attempts had other sandboxes.
  const items = feed.items.slice(feed.items.findLastIndex((item) => item.type === "attempt") + 1);
  const callCommands = items.flatMap((item) => (item.type === "call" ? (callCommand(item.call, item.at) ?? []) : []));
  const entrypoint = task && isPlain(task.agent) ? entrypointCommand(feed, items, task.entrypoint) : null;
  return [...(entrypoint ? [entrypoint] : []), ...callCommands].slice(-MAX_COMMANDS);
}

/** Whether a task only starts its entrypoint. */
function isPlain(agent: unknown): boolean {
  return !agent || agent === "script";
}

function callCommand(call: RunCallItem, at: string): AgentCommand | null {
  const { id, name, args, result, failed, endedAt } = call;
  const argumentFields = typeof args === "object" && args !== null ? (args as Record<string, unknown>) : {};
  const seconds = endedAt ? Math.max(0, (Date.parse(endedAt) - Date.parse(at)) / 1000) || null : null;
  return commandFromCall({
    id: id || at,
    tool: name,
    arguments: argumentFields,
    output: "",
    outputLength: 0,
    result: result === null ? null : { text: result, failed, seconds },
  });
}

function entrypointCommand(feed: RunFeed, items: readonly RunFeedItem[], entrypoint: unknown): AgentCommand | null {
  const started = feed.stages.find(({ stage }) => stage === "watch");
  if (!started) return null;
  const text = Array.isArray(entrypoint) ? entrypoint.join(" ") : String(entrypoint ?? "");
  if (!text.trim()) return null;
  const outputText = items.flatMap((item) => (item.type === "output" ? [item.text] : [])).join("");
  const over = feed.ended || started.endedAt !== null;
  return {
    id: "entrypoint",
    prompt: "$",
    text,
    directory: "",
    state: over ? "done" : "running",
    output: outputText.slice(-MAX_OUTPUT_CHARACTERS),
    outputLength: outputText.length,
    result: over ? outputText : null,
    exit: null,
    seconds: null,
  };
}
