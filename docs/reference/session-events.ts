// The events of Paddock's chat sessions. Written by `make docs`; do not edit.

/** What a policy says of a call. */
export type Action = "allow" | "ask" | "deny";

/** Something that waits for a person: a call to be allowed, or a question to be answered. */
export interface Approval {
  id: string;
  session: string;
  tenant: string;
  turn: number;
  call_id: string;
  type: "call" | "question";
  name: string;
  kind?: string;
  arguments: Record<string, unknown>;
  digest: string;
  summary?: CallSummary;
  question: string;
  choices: Choice[];
  actions: ("approve" | "edit" | "reject" | "answer")[];
  state: ApprovalState;
  edited?: Record<string, unknown>;
  reason?: string;
  always?: "call" | "tool";
  decided_by?: string;
  created_at: string;
  expires_at?: string;
  decided_at?: string;
}

export interface ApprovalDecided {
  approval_id: string;
  call_id: string;
  state: ApprovalState;
  by?: string;
  reason?: string;
  arguments?: Record<string, unknown>;
  always?: "call" | "tool";
}

export interface ApprovalExpired {
  approval_id: string;
  call_id: string;
}

export interface ApprovalRequired {
  approval: Approval;
}

export type ApprovalState = "pending" | "approved" | "edited" | "rejected" | "answered" | "expired" | "withdrawn";

/** How far the image of a sandbox is that has to be built first. */
export interface Building {
  image: string;
  step: string;
  fraction?: number;
}

/** A tool that the agent wants to use. Its id is unique in its session. */
export interface Call {
  id: string;
  name: string;
  arguments: Record<string, unknown>;
  malformed?: string;
}

export interface CallDelta {
  call_id: string;
  text: string;
}

/** What a tool says while it runs, as far as it is told; what comes of it is in the call's result. */
export interface CallOutput {
  call_id: string;
  text: string;
}

/** The call is whole, and in the ledger. */
export interface CallReady {
  call: Call;
  kind?: string;
  tool: string;
}

/** What came of a call, as the model and people are shown it. */
export interface CallResult {
  content: (TextContent | FileContent)[];
  failed: boolean;
  refused: boolean;
  seconds: number;
}

export interface CallResulted {
  call_id: string;
  result: CallResult;
}

export interface CallRunning {
  call_id: string;
  sandbox_id?: string;
  arguments?: Record<string, unknown>;
}

/** The model begins to write a call. */
export interface CallStarted {
  message_id: string;
  call_id: string;
  name: string;
}

/** What a call would do, in one line: derived from its tool and arguments, not from what the agent says. */
export interface CallSummary {
  text: string;
  code: string;
  params: Record<string, string | number>;
  effects: ("reads" | "writes" | "deletes" | "runs" | "network" | "unknown")[];
  writes: string[];
  deletes: string[];
  hosts: string[];
  unnamed: number;
  opaque: boolean;
  agent_words?: string;
}

/** One answer that a question offers. */
export interface Choice {
  id: string;
  label: string;
}

/** A picture or another file that the session keeps. */
export interface FileContent {
  type: "image" | "file";
  file: string;
  name: string;
  mime: string;
  size: number;
}

/** One message of a session's history. */
export interface Message {
  id: string;
  session: string;
  number: number;
  turn: number;
  role: "user" | "assistant" | "tool" | "note";
  content: (TextContent | FileContent)[];
  thought: string;
  calls: Call[];
  call_id?: string;
  cut?: string;
  by?: string;
  at: string;
}

export interface MessageDelta {
  message_id: string;
  text: string;
}

/** The answer is whole, and kept; or it was cut, and says why. */
export interface MessageEnded {
  message_id: string;
  text: string;
  calls: Call[];
  cut?: string;
}

/** Somebody, or the server, wrote to the agent. */
export interface MessageReceived {
  message: Message;
  waits: boolean;
}

export interface MessageStarted {
  message_id: string;
  turn: number;
  step: number;
  by?: string;
}

export interface PlanChanged {
  steps: PlanStep[];
}

export interface PlanStep {
  title: string;
  state: "pending" | "running" | "done" | "dropped";
}

/** What the agent may do by itself. The first rule that fits decides; after them, what the server has as its own: commands and changes of files are asked about, everything else is allowed. */
export interface Policy {
  rules: Rule[];
  allow_all: string[];
}

/** Says what becomes of calls that it fits. Patterns know `*` and `?`. */
export interface Rule {
  tool: string;
  kind: string;
  arguments: Record<string, string>;
  exact: boolean;
  action: Action;
}

/** Somebody has changed its settings; what is absent is as it was. */
export interface SessionChanged {
  title?: string;
  model?: string;
  kinds?: string[];
  policy?: Policy;
  instructions?: string;
  budget?: number;
  visibility?: Visibility;
  by?: string;
}

/** Earlier messages were summed up, because the conversation got too long for the model. */
export interface SessionCompacted {
  messages: number;
  before: number;
  after: number;
}

export interface SessionCreated {
  title: string;
  agent: string;
  model: string;
  kinds: string[];
}

export interface SessionDeleted {
}

export interface SessionDesktop {
  kind: string;
  sandbox_id: string;
  state: "started" | "stopped" | "taken" | "handed_back";
  by?: string;
}

/** A file was written in one of its sandboxes, came from another, or was kept by the session. */
export interface SessionFile {
  kind?: string;
  sandbox_id?: string;
  path: string;
  source?: string;
  size?: number;
}

/** A sandbox of the session was made, found broken or released. */
export interface SessionSandbox {
  kind: string;
  sandbox_id: string;
  state: "starting" | "ready" | "broken" | "released";
  reason?: string;
  building?: Building;
}

/** The screen of one of its sandboxes has changed, because of a tool or by itself. */
export interface SessionScreen {
  kind: string;
  sandbox_id: string;
  cause: string;
  etag?: string;
}

/** In the words that users read. */
export type SessionState = "idle" | "running" | "waiting" | "parked";

export interface SessionStateChanged {
  state: SessionState;
  reason?: string;
}

export interface SessionTerminal {
  kind: string;
  sandbox_id: string;
  name: string;
  state: "ready" | "closed";
}

export interface SessionUsage {
  requests: number;
  input_tokens: number;
  output_tokens: number;
  cost?: number;
}

export interface StepEnded {
  turn: number;
  step: number;
  calls: number;
}

/** The model is asked; a step is one question and the calls of its answer. */
export interface StepStarted {
  turn: number;
  step: number;
  by?: string;
}

export interface TextContent {
  type: "text";
  text: string;
}

export interface ThoughtDelta {
  message_id: string;
  text: string;
}

export interface ThoughtEnded {
  message_id: string;
}

export interface ThoughtStarted {
  message_id: string;
}

export interface TurnEnded {
  turn: number;
  state: "done" | "waiting" | "cancelled" | "failed";
  reason?: string;
}

/** Something went wrong; the turn goes on if it can. */
export interface TurnError {
  code: string;
  message: string;
  fatal: boolean;
}

export interface TurnStarted {
  turn: number;
  cause: "message" | "decisions" | "continue" | "restart";
}

export interface UsageChanged {
  usage: SessionUsage;
}

/** Who may see and use an object. */
export type Visibility = "private" | "tenant";

export interface Told<Type extends string, Data> {
  /** Its place among all events of the server; grows, may have gaps. */
  sequence: number;
  /** `session/ID`. */
  stream: string;
  /** Its place in the session: 1, 2, 3 … The `id:` of server-sent events. */
  number: number;
  /** When it happened. */
  at: string;
  type: Type;
  data: Data;
}

/** One thing that happened in a chat session, as `/v1/sessions/ID/events` and `/v1/sessions/ID/ws` tell it. */
export type SessionEvent =
  | Told<"session.created", SessionCreated>
  | Told<"session.changed", SessionChanged>
  | Told<"session.state", SessionStateChanged>
  | Told<"session.deleted", SessionDeleted>
  | Told<"session.sandbox", SessionSandbox>
  | Told<"session.desktop", SessionDesktop>
  | Told<"session.terminal", SessionTerminal>
  | Told<"session.screen", SessionScreen>
  | Told<"session.file", SessionFile>
  | Told<"session.compacted", SessionCompacted>
  | Told<"turn.started", TurnStarted>
  | Told<"turn.ended", TurnEnded>
  | Told<"step.started", StepStarted>
  | Told<"step.ended", StepEnded>
  | Told<"plan.changed", PlanChanged>
  | Told<"message.received", MessageReceived>
  | Told<"message.started", MessageStarted>
  | Told<"message.delta", MessageDelta>
  | Told<"message.ended", MessageEnded>
  | Told<"thought.started", ThoughtStarted>
  | Told<"thought.delta", ThoughtDelta>
  | Told<"thought.ended", ThoughtEnded>
  | Told<"call.started", CallStarted>
  | Told<"call.delta", CallDelta>
  | Told<"call.ready", CallReady>
  | Told<"call.running", CallRunning>
  | Told<"call.output", CallOutput>
  | Told<"call.result", CallResulted>
  | Told<"approval.required", ApprovalRequired>
  | Told<"approval.decided", ApprovalDecided>
  | Told<"approval.expired", ApprovalExpired>
  | Told<"usage.changed", UsageChanged>
  | Told<"turn.error", TurnError>;
