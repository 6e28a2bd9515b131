/** A chat session as the console shows it: what `apply` makes of its events. */

import type {
  Approval,
  Building,
  CallResult,
  Message,
  PlanStep,
  Policy,
  SessionEvent,
  SessionState,
  SessionUsage,
} from "@/api/session-events";
import type { Owned } from "@/ui/Sharing";

/** What a person or the server said. */
export interface SaidItem {
  type: "said";
  id: string;
  turn: number;
  at: string;
  message: Message;
  /** It will be read before the agent's next step, or once what waits is decided. */
  waits: boolean;
}

/** One answer of the agent: its thought, its words and the calls it made, in that order. */
export interface AnswerItem {
  type: "answer";
  id: string;
  turn: number;
  step: number;
  at: string;
  /** A helper of the agent who speaks instead of it. */
  by: string | null;
  text: string;
  thought: string;
  thinking: boolean;
  /** Ids of calls, in `SessionView.calls`. */
  calls: string[];
  /** Whether all of it has been told. */
  whole: boolean;
  /** Why it was cut, if it was. */
  cut: string | null;
}

/** Something that went wrong, or that earlier messages were summed up. */
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

export type Item = SaidItem | AnswerItem | ErrorItem | CompactedItem;

export type CallProgress = "writing" | "ready" | "asked" | "running" | "done";

export interface CallView {
  id: string;
  answer: string;
  turn: number;
  /** With its kind: `linux_run_shell_command`. */
  name: string;
  kind: string | null;
  /** Its name in the sandbox. */
  tool: string;
  /** What the model has written of the arguments so far. */
  written: string;
  /** Whole arguments; after an edit, those of the person. */
  arguments: Record<string, unknown> | null;
  malformed: string | null;
  progress: CallProgress;
  sandbox: string | null;
  /** Of `SessionView.approvals`. */
  approval: string | null;
  /** What it has said since it runs, the last of it; empty once there is a result. */
  output: string;
  /** Characters of output that were told while it ran, also those that are not kept. */
  heard: number;
  result: CallResult | null;
  at: string;
  runningAt: string | null;
  endedAt: string | null;
}

export interface TurnView {
  number: number;
  /** Why it began; a turn that goes on after decisions or a restart keeps it. */
  cause: "message" | "decisions" | "continue" | "restart";
  state: "running" | "done" | "waiting" | "cancelled" | "failed";
  reason: string | null;
  startedAt: string;
  /** Null while it waits. */
  endedAt: string | null;
  /** What the session had used when the turn began, and has now or had when it ended. */
  usageBefore: SessionUsage;
  usageAfter: SessionUsage;
}

export interface BoxView {
  /** While it starts it has no id yet, and is under its kind's name; so is one that could not be started. */
  id: string;
  kind: string;
  state: "starting" | "ready" | "broken" | "released";
  reason: string | null;
  /** The image that it waits for while it starts, if that has to be built first. */
  building: Building | null;
  desktop: "none" | "started" | "stopped";
  /** Who has mouse and keyboard, if not the agent. */
  holder: string | null;
  /** Names of terminals that are open. */
  terminals: string[];
  /** Files that were written, the newest last, each once. */
  files: { path: string; size: number | null; at: string }[];
  /** Grows whenever its screen has changed. */
  screen: number;
}

/** Which view of which box the agent used last, for the panel to open by itself. */
export interface Attention {
  sandbox: string;
  view: "desktop" | "terminal" | "files" | "output";
  /** Of the event that asked for it; grows. */
  number: number;
}

export interface SessionView {
  /** The number of the last event that is in it; 0 if none is. */
  last: number;
  title: string;
  agent: string;
  model: string;
  kinds: string[];
  /** These three no event tells until they change; `useSession` takes them from the session's record. */
  policy: Policy | null;
  instructions: string;
  budget: number | null;
  /** Its owner and who else sees it; nothing until the session's record is there. */
  owned: Owned | null;
  state: SessionState;
  reason: string | null;
  deleted: boolean;
  /** The number of the last turn; 0 before the first. */
  turn: number;
  items: Item[];
  calls: Record<string, CallView>;
  approvals: Record<string, Approval>;
  turns: Record<number, TurnView>;
  plan: PlanStep[];
  boxes: Record<string, BoxView>;
  /** Boxes in the order in which they came. */
  boxOrder: string[];
  usage: SessionUsage;
  attention: Attention | null;
  /** Events that came before one that is still missing; by number. */
  early: Record<number, SessionEvent>;
}

/** Approvals that wait for a person, the oldest first. */
export function pending(view: SessionView): Approval[] {
  return Object.values(view.approvals)
    .filter((each) => each.state === "pending")
    .sort((one, other) => (one.created_at < other.created_at ? -1 : 1));
}
