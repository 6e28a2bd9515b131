import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it } from "vitest";
import { ApiError } from "@/api/client";
import type { Approval, CallResult } from "@/api/types";
import type { ApprovalDecision } from "@/session/store";
import type { CallView } from "@/session/types";
import { Toasts } from "@/ui/controls/toasts";
import { ChatContext, type ChatContextValue } from "../chat-context";
import { CallCard } from "./CallCard";
import { LiveCallOutput } from "./LiveCallOutput";

afterEach(cleanup);

const CALL: CallView = {
  id: "call-1",
  answer: "msg-1",
  turn: 1,
  name: "linux_run_shell_command",
  kind: "linux",
  tool: "run_shell_command",
  argumentsJson: "",
  arguments: { command: "ls -la" },
  malformed: null,
  progress: "asked",
  sandbox: null,
  approval: "approval-1",
  output: "",
  outputLength: 0,
  result: null,
  at: "2026-01-01T00:00:00Z",
  runningAt: null,
  endedAt: null,
};

const APPROVAL: Approval = {
  id: "approval-1",
  session: "ses-1",
  tenant: "default",
  turn: 1,
  call_id: "call-1",
  type: "call",
  name: CALL.name,
  kind: "linux",
  arguments: { command: "ls -la" },
  digest: "abc",
  question: "",
  choices: [],
  actions: ["approve", "edit", "reject", "answer"],
  state: "pending",
  created_at: "2026-01-01T00:00:00Z",
};

function renderCard(call: Partial<CallView>, approval: Partial<Approval> | null, chat: Partial<ChatContextValue> = {}) {
  const decided: ApprovalDecision[] = [];
  const noop = () => {};
  const context: ChatContextValue = {
    session: "ses-1",
    several: false,
    kinds: ["linux"],
    sandboxes: {},
    keptFiles: {},
    revision: "",
    mayWrite: true,
    decide: async (decisions) => void decided.push(...decisions),
    ...{ show: noop, fork: noop, continueTurn: noop, openSettings: noop, retry: noop, discard: noop },
    ...chat,
  };
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ChatContext value={context}>
        <CallCard call={{ ...CALL, ...call }} approval={approval && { ...APPROVAL, ...approval }} />
      </ChatContext>
      <Toasts />
    </QueryClientProvider>,
  );
  return decided;
}

const result = (text: string, more: Partial<CallResult> = {}): CallResult => ({
  content: [{ type: "text", text }],
  failed: false,
  refused: false,
  seconds: 1.5,
  ...more,
});

describe("a call that needs approval", () => {
  it("shows command and sandbox, and approves exactly that", async () => {
    const decided = renderCard({}, {});
    const card = screen.getByRole("article", { name: "Run a command in linux" });
    expect(within(card).getAllByText("ls -la").length).toBeGreaterThan(0);
    await userEvent.click(within(card).getByRole("button", { name: /^Approve/ }));
    expect(decided).toEqual([{ approval: "approval-1", digest: "abc", action: "approve" }]);
  });

  it("folds a long command, and approves all of it", async () => {
    const command = Array.from({ length: 30 }, (_, index) => `echo line-${index + 1}`).join("\n");
    const decided = renderCard({ arguments: { command } }, { arguments: { command }, digest: "of-all-lines" });
    const card = screen.getByRole("article");
    expect(card.textContent).toContain("line-8");
    expect(card.textContent).not.toContain("line-20");
    await userEvent.click(within(card).getByRole("button", { name: "Show all 30 lines" }));
    expect(card.textContent).toContain("line-20");
    expect(card.textContent).toContain("line-30");
    await userEvent.click(within(card).getByRole("button", { name: /^Approve/ }));
    expect(decided).toEqual([{ approval: "approval-1", digest: "of-all-lines", action: "approve" }]);
  });

  it.each([
    ["text", (text: string) => text],
    ["a list", (text: string) => [text]],
  ])("shows a long argument of an unknown tool in full: %s", async (_, wrap) => {
    const body = wrap(`${"x".repeat(9_990)}the marker`);
    renderCard({ name: "crm_post", tool: "crm_post", kind: null, arguments: { body } }, { arguments: { body } });
    const card = screen.getByRole("article");
    expect(card.textContent).toContain("xxx");
    expect(card.textContent).not.toContain("the marker");
    await userEvent.click(within(card).getByRole("button", { name: /^Show all/ }));
    expect(card.textContent).toContain("the marker");
    await userEvent.click(within(card).getByRole("button", { name: "Show less" }));
    expect(card.textContent).not.toContain("the marker");
  });

  it("sends edited arguments only if valid", async () => {
    const decided = renderCard({}, {});
    await userEvent.click(screen.getByRole("button", { name: "Edit" }));
    await userEvent.click(screen.getByRole("button", { name: "As JSON" }));
    const field = screen.getByRole("textbox", { name: "Arguments" });
    await userEvent.clear(field);
    await userEvent.type(field, "[[1]");
    expect(screen.getByRole<HTMLButtonElement>("button", { name: "Approve with changes" }).disabled).toBe(true);
    await userEvent.clear(field);
    await userEvent.type(field, '{{"command": "id"}');
    await userEvent.click(screen.getByRole("button", { name: "Approve with changes" }));
    expect(decided).toEqual([{ approval: "approval-1", digest: "abc", action: "edit", arguments: { command: "id" } }]);
  });

  it("warns of invisible characters", () => {
    const command = "echo \u202e; rm -rf ~";
    renderCard({ arguments: { command } }, { arguments: { command } });
    expect(screen.getByRole("alert").textContent).toContain("echo ⟨U+202E⟩; rm -rf ~");
  });

  it("offers the choices of a question, and a free answer", async () => {
    const decided = renderCard(
      { name: "ask_user", tool: "ask_user", kind: null, arguments: { question: "Which?" } },
      { type: "question", question: "Which?", choices: [{ id: "1", label: "This one" }], actions: ["answer"] },
    );
    expect(screen.queryByRole("button", { name: /^Approve/ })).toBeNull();
    await userEvent.click(screen.getByRole("button", { name: "This one" }));
    expect(decided).toMatchObject([{ action: "answer", answer: "This one" }]);
  });

  it("reports that another person decided first", async () => {
    const conflict = () => Promise.reject(new ApiError(409, "CONFLICT", "it was decided"));
    renderCard({}, {}, { decide: conflict });
    await userEvent.click(screen.getByRole("button", { name: /^Approve/ }));
    await waitFor(() => expect(screen.getByText(/This was already decided/)).toBeTruthy());
  });

  it("cannot be decided with a read-only key", () => {
    renderCard({}, {}, { mayWrite: false });
    expect(screen.queryByRole("button", { name: /^(Approve|Reject|Edit)/ })).toBeNull();
  });
});

describe("a running call", () => {
  const renderRunning = (output: string) => renderCard({ progress: "running", approval: null, output }, null);

  it("shows live output while folded", () => {
    renderRunning("\u001b[32mone\u001b[0m\n10%\r20%\r\n<b>two</b>\n");
    const liveOutput = screen.getByRole("group", { name: "Live output" });
    expect(liveOutput.textContent).toBe("one\n20%\n<b>two</b>");
    expect(screen.getByRole("button", { expanded: false })).toBeTruthy();
    expect(liveOutput.closest("[aria-live], [role=log], [role=status]")).toBeNull();
  });

  it("shows output once when opened, with the arguments", async () => {
    renderRunning("one\n");
    await userEvent.click(screen.getByRole("button", { name: /Run a command/ }));
    expect(screen.getAllByText("one")).toHaveLength(1);
    expect(screen.getAllByText("ls -la").length).toBeGreaterThan(1);
  });

  it("shows no live output before the first output and after the end", () => {
    renderRunning("");
    renderRunning("\u001b[?25l\n");
    renderCard({ progress: "done", approval: null, output: "", result: result("fine") }, null);
    expect(screen.queryByRole("group", { name: "Live output" })).toBeNull();
  });

  it("sticks to the end unless the reader scrolls up", () => {
    const sizes = { scrollHeight: 500, clientHeight: 100 };
    for (const [name, value] of Object.entries(sizes))
      Object.defineProperty(HTMLElement.prototype, name, { configurable: true, get: () => value });
    try {
      const { rerender } = render(<LiveCallOutput text="one" />);
      const liveOutput = screen.getByRole("group");
      expect(liveOutput.scrollTop).toBe(500);
      liveOutput.scrollTop = 120;
      fireEvent.scroll(liveOutput);
      rerender(<LiveCallOutput text={"one\ntwo"} />);
      expect(liveOutput.scrollTop).toBe(120);
      liveOutput.scrollTop = 400;
      fireEvent.scroll(liveOutput);
      rerender(<LiveCallOutput text={"one\ntwo\nthree"} />);
      expect(liveOutput.scrollTop).toBe(500);
    } finally {
      for (const name of Object.keys(sizes)) Reflect.deleteProperty(HTMLElement.prototype, name);
    }
  });
});

describe("a finished call", () => {
  it("tells people who rejected it, without the text for the model", async () => {
    const refused = result("A person rejected this call.\nDo not simply repeat it", { refused: true });
    renderCard({ progress: "done", result: refused }, { state: "rejected", decided_by: "ada", reason: "too risky" });
    await userEvent.click(screen.getByRole("button", { expanded: false }));
    const card = screen.getByRole("article");
    expect(card.textContent).toContain("too risky");
    expect(card.textContent).not.toContain("Do not simply repeat it");
  });

  it("is folded, and opened if it failed", async () => {
    renderCard({ progress: "done", approval: null, result: result("fine") }, null);
    expect(screen.queryByText("fine")).toBeNull();
    await userEvent.click(screen.getByRole("button", { name: /Run a command/ }));
    expect(screen.getByText("fine")).toBeTruthy();
    cleanup();
    renderCard({ progress: "done", approval: null, result: result("no such file", { failed: true }) }, null);
    expect(screen.getByText("no such file")).toBeTruthy();
  });

  it("cuts a long result until expanded", async () => {
    const long = Array.from({ length: 1000 }, (_, index) => `line ${index}`).join("\n");
    renderCard({ progress: "done", approval: null, result: result(long, { failed: true }) }, null);
    expect(document.body.textContent).not.toContain("line 999");
    await userEvent.click(screen.getByRole("button", { name: "Show all (1,000 lines)" }));
    expect(document.body.textContent).toContain("line 999");
  });

  it("renders agent and tool output as plain text", () => {
    const hostile = '<img src=x onerror="window.hit = 1"><script>window.hit = 1</script>';
    const name = `linux_${hostile}`;
    renderCard(
      { name, tool: hostile, arguments: { [hostile]: hostile }, result: result(hostile, { failed: true }) },
      null,
    );
    expect(document.querySelector("img, script")).toBeNull();
    expect(screen.getAllByText(hostile).length).toBeGreaterThan(1);
  });
});
