/** View of a chat session: the result of `applySessionEvents`. */

import type {
  Approval,
  CallResult,
  ImageBuildProgress,
  PlanStep,
  Policy,
  SessionEvent,
  SessionMessage,
  SessionState,
  SessionUsage,
} from "@/api/session-events";
import type { OwnedResource } from "@/ui/controls/Sharing";

/** Message of a user or the server. */
export interface MessageItem {
  type: "message";
  id: string;
  turn: number;
  at: string;
  message: SessionMessage;
  /** Will be read before the agent's next step, or after pending decisions. */
  isWaiting: boolean;
}

/** One answer of the agent: thought, text and calls, in that order. */
export interface AnswerItem {
  type: "answer";
  id: string;
  turn: number;
  step: number;
  at: string;
  /** Subagent that wrote it instead of the agent. */
  by: string | null;
  text: string;
  thought: string;
  thinking: boolean;
  /** Ids of calls in `SessionView.calls`. */
  calls: string[];
  /** Whether the answer is complete. */
  isComplete: boolean;
  /** Why it was cut, if it was. */
  cut: string | null;
}

/** An error of a turn. */
export interface ErrorItem {
  type: "error";
  id: string;
  turn: number;
  at: string;
  code: string;
  text: string;
  fatal: boolean;
}

export interface CompactedItem {
  type: "compacted";
  id: string;
  turn: number;
  at: string;
  messages: number;
  before: number;
  after: number;
}

export type ChatItem = MessageItem | AnswerItem | ErrorItem | CompactedItem;

export type CallProgress = "writing" | "ready" | "asked" | "running" | "done";

export interface CallView {
  id: string;
  answer: string;
  turn: number;
  /** Full name with its kind: `linux_run_shell_command`. */
  name: string;
  kind: string | null;
  /** Tool name in the sandbox. */
  tool: string;
  /** Streamed JSON of the arguments so far. */
  argumentsJson: string;
  /** Complete arguments; after an edit, the edited ones. */
  arguments: Record<string, unknown> | null;
  malformed: string | null;
  progress: CallProgress;
  sandbox: string | null;
  /** Id in `SessionView.approvals`. */
  approval: string | null;
  /** Live output, its last part; empty once there is a result. */
  output: string;
  /** Total characters of live output, including dropped ones. */
  outputLength: number;
  result: CallResult | null;
  at: string;
  runningAt: string | null;
  endedAt: string | null;
}

export interface TurnView {
  number: number;
  /** Why the turn started; kept when it continues after decisions or a restart. */
  cause: "message" | "decisions" | "continue" | "restart";
  state: "running" | "done" | "waiting" | "cancelled" | "failed";
  reason: string | null;
  startedAt: string;
  /** Null while waiting. */
  endedAt: string | null;
  /** Session usage when the turn started, and now or at its end. */
  usageBefore: SessionUsage;
  usageAfter: SessionUsage;
}

export interface SandboxView {
  /** A starting or failed sandbox has no id; its kind is used instead. */
  id: string;
  kind: string;
  state: "starting" | "ready" | "broken" | "released";
  reason: string | null;
  /** Image that must be built before the sandbox can start. */
  building: ImageBuildProgress | null;
  desktop: "none" | "started" | "stopped";
  /** Person in control of mouse and keyboard; null for the agent. */
  holder: string | null;
  /** Names of open terminals. */
  terminals: string[];
  /** Written files, newest last, each once. */
  files: { path: string; size: number | null; at: string }[];
  /** Incremented when the screen has changed. */
  screen: number;
}

/** Sandbox and view that the agent used last, for the panel to open. */
export interface AgentAttention {
  sandbox: string;
  view: "desktop" | "terminal" | "files" | "output";
  /** Number of the event that caused it. */
  number: number;
}

export interface SessionView {
  /** Number of the last applied event; 0 if none. */
  last: number;
  title: string;
  agent: string;
  model: string;
  kinds: string[];
  /** Policy, instructions, budget and network have no initial event; `useSession` takes them from the session's record. */
  policy: Policy | null;
  instructions: string;
  budget: number | null;
  /** Network policy of its sandboxes; null for that of each kind. */
  network: string[] | null;
  /** Owner and visibility; null until the session's record is loaded. */
  owned: OwnedResource | null;
  state: SessionState;
  reason: string | null;
  deleted: boolean;
  /** Number of the last turn; 0 before the first. */
  turn: number;
  items: ChatItem[];
  calls: Record<string, CallView>;
  approvals: Record<string, Approval>;
  turns: Record<number, TurnView>;
  plan: PlanStep[];
  sandboxes: Record<string, SandboxView>;
  /** Ids of sandboxes in order of creation. */
  sandboxOrder: string[];
  usage: SessionUsage;
  attention: AgentAttention | null;
  /** Events received before a missing one, by number. */
  earlyEvents: Record<number, SessionEvent>;
}

/** Pending approvals, oldest first. */
export function pendingApprovals(view: SessionView): Approval[] {
  return Object.values(view.approvals)
    .filter((each) => each.state === "pending")
    .sort((one, other) => (one.created_at < other.created_at ? -1 : 1));
}
