/** State of a run, built from its events. */

import { type BuildSteps, buildSteps } from "@/ui/format/build-steps";

export interface RunEvent {
  number: number;
  type: string;
  at: string;
  data: Record<string, unknown>;
}

export type RunFeedItem =
  | { type: "text" | "thinking"; id: number; at: string; text: string; scripted: boolean }
  | { type: "call"; id: number; at: string; call: RunCallItem }
  | { type: "output"; id: number; at: string; stream: string; text: string }
  | { type: "error"; id: number; at: string; text: string }
  | { type: "attempt"; id: number; at: string; attempt: number; cause: RunEndCause; wait: number }
  | { type: "cancelling"; id: number; at: string; reason: string };

/** Why an attempt ended: the server's sentence, and its code and values for translations. */
export interface RunEndCause {
  reason: string;
  code: string;
  params: Record<string, string>;
}

export interface RunCallItem {
  id: string;
  name: string;
  args: unknown;
  result: string | null;
  failed: boolean;
  scripted: boolean;
  /** When the result came; null before. */
  endedAt: string | null;
}

export interface RunStageItem {
  stage: string;
  at: string;
  endedAt: string | null;
}

/** Progress of the run's image build. */
export interface BuildProgress {
  image: string;
  step: string;
  /** Fraction of the build from 0 to 1; null while unknown. */
  fraction: number | null;
  /** Step of the build; null while unknown. */
  steps: BuildSteps | null;
}

export interface RunUsage {
  turns: number;
  requests: number;
  inputTokens: number;
  outputTokens: number;
  cost: number | null;
}

export interface RunFeed {
  /** Number of the last applied event. */
  last: number;
  items: RunFeedItem[];
  attempt: number;
  scripted: boolean;
  model: string | null;
  /** Stages of the current or last attempt. */
  stages: RunStageItem[];
  build: BuildProgress | null;
  sandbox: string | null;
  image: string | null;
  figures: RunUsage | null;
  ended: boolean;
}

export const EMPTY_FEED: RunFeed = {
  last: 0,
  items: [],
  attempt: 1,
  scripted: false,
  model: null,
  stages: [],
  build: null,
  sandbox: null,
  image: null,
  figures: null,
  ended: false,
};

/** Maximum characters of one output item; more starts another. */
const MAX_OUTPUT = 16_000;

/** Feed after more events. Known and unrecognized events are ignored. */
export function applyRunEvents(feed: RunFeed, events: RunEvent[]): RunFeed {
  const next: RunFeed = { ...feed, items: [...feed.items], stages: [...feed.stages] };
  for (const event of events) {
    if (event.number <= next.last) continue;
    next.last = event.number;
    applyRunEvent(next, event);
  }
  return next;
}

function applyRunEvent(feed: RunFeed, { number: id, type, at, data }: RunEvent): void {
  const text = (name: string) => (typeof data[name] === "string" ? (data[name] as string) : "");
  const count = (name: string) => (typeof data[name] === "number" ? (data[name] as number) : 0);
  const { items, scripted } = feed;
  switch (type) {
    case "run.started":
      Object.assign(feed, { attempt: count("attempt") || 1, scripted: data.scripted === true, stages: [] });
      Object.assign(feed, { model: text("model") || null, figures: null, sandbox: null, build: null });
      break;
    case "run.stage":
      feed.build =
        typeof data.step === "string"
          ? {
              image: text("image"),
              step: data.step,
              fraction: typeof data.fraction === "number" ? data.fraction : null,
              steps: buildSteps(data.step_number, data.step_count),
            }
          : null;
      // A build reports the same stage many times.
      if (feed.stages.at(-1)?.stage === text("stage") && !feed.stages.at(-1)?.endedAt) break;
      closeStage(feed, at);
      feed.stages.push({ stage: text("stage"), at, endedAt: null });
      break;
    case "run.sandbox":
      feed.sandbox = text("sandbox_id") || null;
      feed.image = text("image") || null;
      break;
    case "run.text":
    case "run.thinking":
      items.push({ type: type === "run.text" ? "text" : "thinking", id, at, text: text("text"), scripted });
      break;
    case "run.tool_call": {
      const call = {
        id: text("id"),
        name: text("name"),
        args: data.arguments,
        result: null,
        failed: false,
        scripted,
        endedAt: null,
      };
      items.push({ type: "call", id, at, call });
      break;
    }
    case "run.tool_result":
      attachResult(feed, id, at, text("id"), text("text"), data.failed === true);
      break;
    case "run.output": {
      const before = items.at(-1);
      const more = text("text");
      if (before?.type === "output" && before.stream === text("stream") && before.text.length < MAX_OUTPUT)
        items[items.length - 1] = { ...before, text: before.text + more };
      else items.push({ type: "output", id, at, stream: text("stream"), text: more });
      break;
    }
    case "run.error":
    case "run.model_failed":
      items.push({ type: "error", id, at, text: text("message") });
      break;
    case "run.usage":
      feed.figures = {
        turns: count("turns"),
        requests: count("requests"),
        inputTokens: count("input_tokens"),
        outputTokens: count("output_tokens"),
        cost: typeof data.cost === "number" ? data.cost : null,
      };
      break;
    case "run.cancelling":
      items.push({ type: "cancelling", id, at, reason: text("reason") });
      break;
    case "run.retrying":
      closeStage(feed, at);
      items.push({
        type: "attempt",
        id,
        at,
        attempt: feed.attempt + 1,
        cause: { reason: text("reason"), code: text("code"), params: (data.params ?? {}) as Record<string, string> },
        wait: count("wait"),
      });
      break;
    case "run.ended":
      closeStage(feed, at);
      feed.build = null;
      feed.ended = true;
      break;
  }
}

function closeStage(feed: RunFeed, at: string): void {
  const last = feed.stages.at(-1);
  if (last && !last.endedAt) feed.stages[feed.stages.length - 1] = { ...last, endedAt: at };
}

/** Attach a result to its call; a result without a call gets an item of its own. */
function attachResult(feed: RunFeed, id: number, at: string, callId: string, result: string, failed: boolean): void {
  const index = feed.items.findLastIndex((item) => item.type === "call" && item.call.id === callId);
  const found = feed.items[index];
  if (found?.type === "call") feed.items[index] = { ...found, call: { ...found.call, result, failed, endedAt: at } };
  else
    feed.items.push({
      type: "call",
      id,
      at,
      call: { id: callId, name: callId, args: {}, result, failed, scripted: feed.scripted, endedAt: at },
    });
}
