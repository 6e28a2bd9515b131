// The events of Paddock's chat sessions. Written by `make docs`; do not edit.

/** A pending decision: a call to approve or a question to answer. */
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
  choices: QuestionChoice[];
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

export interface CallDelta {
  call_id: string;
  text: string;
}

/** Output of a running tool; the call's result has the final output. */
export interface CallOutput {
  call_id: string;
  text: string;
}

/** The call is complete and stored in the ledger. */
export interface CallReady {
  call: ToolCall;
  kind?: string;
  tool: string;
}

/** Result of a call, as shown to the model and to people. */
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

/** The model starts to write a call. */
export interface CallStarted {
  message_id: string;
  call_id: string;
  name: string;
}

/** One-line summary of a call's effect, derived from tool and arguments, not from the agent's words. */
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

/** An image or another file stored with the session. */
export interface FileContent {
  type: "image" | "file";
  file: string;
  name: string;
  mime: string;
  size: number;
}

/** Progress of an image build that a sandbox waits for. */
export interface ImageBuildProgress {
  image: string;
  step: string;
  fraction?: number;
  step_number?: number;
  step_count?: number;
}

export interface MessageDelta {
  message_id: string;
  text: string;
}

/** The message is complete, or incomplete with the reason in `cut`. */
export interface MessageEnded {
  message_id: string;
  text: string;
  calls: ToolCall[];
  cut?: string;
}

/** A person or the server wrote to the agent. */
export interface MessageReceived {
  message: SessionMessage;
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

/** Approval policy. The first matching rule decides; without one, the server's default applies: commands and file changes need approval, everything else is allowed. */
export interface Policy {
  rules: PolicyRule[];
  allow_all: string[];
}

/** Action of a policy rule. */
export type PolicyAction = "allow" | "ask" | "deny";

/** A policy rule: the action for matching calls. Patterns support `*` and `?`. */
export interface PolicyRule {
  tool: string;
  kind: string;
  arguments: Record<string, string>;
  exact: boolean;
  action: PolicyAction;
}

/** One choice of a question. */
export interface QuestionChoice {
  id: string;
  label: string;
}

/** The settings changed; absent fields are unchanged. */
export interface SessionChanged {
  title?: string;
  model?: string;
  kinds?: string[];
  network?: string[];
  default_network?: true;
  policy?: Policy;
  instructions?: string;
  budget?: number;
  visibility?: Visibility;
  by?: string;
}

/** Earlier messages were summarised, because the conversation became too long for the model. */
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

/** A file was written in a sandbox, moved from another one, or stored with the session. */
export interface SessionFile {
  kind?: string;
  sandbox_id?: string;
  path: string;
  source?: string;
  size?: number;
}

/** One message of a session. */
export interface SessionMessage {
  id: string;
  session: string;
  number: number;
  turn: number;
  role: "user" | "assistant" | "tool" | "note";
  content: (TextContent | FileContent)[];
  thought: string;
  calls: ToolCall[];
  call_id?: string;
  cut?: string;
  by?: string;
  at: string;
}

/** A sandbox of the session was created, found broken or released. */
export interface SessionSandbox {
  kind: string;
  sandbox_id: string;
  state: "starting" | "ready" | "broken" | "released";
  reason?: string;
  building?: ImageBuildProgress;
}

/** The screen of a sandbox changed, because of a tool or by itself. */
export interface SessionScreen {
  kind: string;
  sandbox_id: string;
  cause: string;
  etag?: string;
}

/** State of a session, as users read it. */
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

/** A step: one model request and the calls of its answer. */
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

/** A tool call of the agent. Its id is unique in the session. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: Record<string, unknown>;
  malformed?: string;
}

export interface TurnEnded {
  turn: number;
  state: "done" | "waiting" | "cancelled" | "failed";
  reason?: string;
}

/** An error; the turn continues unless it is fatal. */
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

/** Audience of an object. */
export type Visibility = "private" | "tenant";

export interface EventOf<Type extends string, Data> {
  /** Position among all events of the server; grows, may have gaps. */
  sequence: number;
  /** `session/ID`. */
  stream: string;
  /** Position in the session: 1, 2, 3 … The `id:` of server-sent events. */
  number: number;
  /** Time of the event. */
  at: string;
  type: Type;
  data: Data;
}

/** An event of a chat session, as `/v1/sessions/ID/events` and `/v1/sessions/ID/ws` send it. */
export type SessionEvent =
  | EventOf<"session.created", SessionCreated>
  | EventOf<"session.changed", SessionChanged>
  | EventOf<"session.state", SessionStateChanged>
  | EventOf<"session.deleted", SessionDeleted>
  | EventOf<"session.sandbox", SessionSandbox>
  | EventOf<"session.desktop", SessionDesktop>
  | EventOf<"session.terminal", SessionTerminal>
  | EventOf<"session.screen", SessionScreen>
  | EventOf<"session.file", SessionFile>
  | EventOf<"session.compacted", SessionCompacted>
  | EventOf<"turn.started", TurnStarted>
  | EventOf<"turn.ended", TurnEnded>
  | EventOf<"step.started", StepStarted>
  | EventOf<"step.ended", StepEnded>
  | EventOf<"plan.changed", PlanChanged>
  | EventOf<"message.received", MessageReceived>
  | EventOf<"message.started", MessageStarted>
  | EventOf<"message.delta", MessageDelta>
  | EventOf<"message.ended", MessageEnded>
  | EventOf<"thought.started", ThoughtStarted>
  | EventOf<"thought.delta", ThoughtDelta>
  | EventOf<"thought.ended", ThoughtEnded>
  | EventOf<"call.started", CallStarted>
  | EventOf<"call.delta", CallDelta>
  | EventOf<"call.ready", CallReady>
  | EventOf<"call.running", CallRunning>
  | EventOf<"call.output", CallOutput>
  | EventOf<"call.result", CallResulted>
  | EventOf<"approval.required", ApprovalRequired>
  | EventOf<"approval.decided", ApprovalDecided>
  | EventOf<"approval.expired", ApprovalExpired>
  | EventOf<"usage.changed", UsageChanged>
  | EventOf<"turn.error", TurnError>;
