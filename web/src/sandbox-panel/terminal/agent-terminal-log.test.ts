import { describe, expect, it } from "vitest";
import type { SessionEvent } from "@/api/session-events";
import { applySessionEvents, emptySessionView } from "@/session/reducer";
import type { SessionView } from "@/session/types";
import { finalTerminalText } from "@/ui/content/terminal-text";
import { agentCommandsInSandbox } from "./agent-commands";
import { AgentTerminalLog } from "./agent-terminal-log";
import { TerminalOutputFilter } from "./terminal-output-filter";

const SANDBOX = { id: "box-1", kind: "code" };
let number = 0;
const event = (type: string, data: object) =>
  ({ number: ++number, at: `2026-01-01T00:00:${String(number).padStart(2, "0")}Z`, type, data }) as SessionEvent;

/** A session built event by event, and its agent terminal. */
function started() {
  number = 0;
  let view: SessionView = emptySessionView();
  let screen = "";
  let resets = 0;
  const sink = {
    write: (text: string) => {
      screen += text;
    },
    reset: () => {
      screen = "";
      resets += 1;
    },
  };
  const log = new AgentTerminalLog(sink, {
    exit: (code, seconds) => `[exit code ${code}] ${seconds}`,
    ended: () => "[finished]",
    failed: () => "[failed]",
    cut: "[more]",
    duration: (seconds) => `${seconds} s`,
  });
  const receive = (...events: SessionEvent[]) => {
    view = applySessionEvents(view, events);
    log.show(agentCommandsInSandbox(view.calls, SANDBOX));
    return finalTerminalText(screen);
  };
  const call = (id: string, name: string, args: object, tool = name) => [
    event("call.ready", { call: { id, name, arguments: args }, kind: "code", tool }),
    event("call.running", { call_id: id, sandbox_id: "box-1" }),
  ];
  const command = (id: string, text: string) =>
    call(id, "code_run_shell_command", { command: text }, "run_shell_command");
  const output = (id: string, text: string) => event("call.output", { call_id: id, text });
  const result = (id: string, text: string, more: object = {}) =>
    event("call.result", {
      call_id: id,
      result: { content: [{ type: "text", text }], failed: false, refused: false, seconds: 1.5, ...more },
    });
  receive(event("turn.started", { turn: 1, cause: "message" }));
  receive(event("message.started", { message_id: "m", turn: 1, step: 1 }));
  const replayFromStart = () => {
    const writtenParts: string[] = [];
    const freshLog = new AgentTerminalLog(
      { write: (text) => writtenParts.push(text), reset: () => writtenParts.splice(0) },
      { exit: (code) => `[exit code ${code}]`, ended: () => "", failed: () => "", cut: "[more]", duration: String },
    );
    freshLog.show(agentCommandsInSandbox(view.calls, SANDBOX));
    return finalTerminalText(writtenParts.join(""));
  };
  return { receive, call, command, output, result, replayFromStart, resets: () => resets, raw: () => screen };
}

describe("the agent's terminal", () => {
  it("shows command, live output and exit code", () => {
    const { receive, command, output, result, resets } = started();
    expect(receive(...command("c", "make all"))).toBe("$ make all\n");
    expect(receive(output("c", "one\n"))).toBe("$ make all\none\n");
    expect(receive(output("c", "two\n"))).toBe("$ make all\none\ntwo\n");
    expect(receive(result("c", "one\ntwo\n[exit code 2]"))).toBe("$ make all\none\ntwo\n[exit code 2] 1.5 s\n");
    expect(receive(...command("d", "ls"))).toContain("1.5 s\n\n$ ls\n");
    expect(resets()).toBe(0);
  });

  it("shows the same after a reload, from the results", () => {
    const { receive, command, output, result, replayFromStart } = started();
    receive(...command("c", "make all"), output("c", "one\n"), result("c", "one"));
    expect(replayFromStart()).toBe("$ make all\none\n[exit code 0]\n");
  });

  it("is rewritten if the result has more than the live output", () => {
    const { receive, command, output, result, resets } = started();
    receive(...command("c", "make all"), output("c", "one\n"));
    expect(receive(result("c", "one\nthe rest"))).toBe("$ make all\none\nthe rest\n[exit code 0] 1.5 s\n");
    expect(resets()).toBe(1);
  });

  it("adds nothing if stderr was interleaved", () => {
    const { receive, command, output, result, resets } = started();
    receive(...command("c", "make"), output("c", "out 1\nerr 1\nout 2\n"));
    receive(result("c", "out 1\nout 2\n[stderr]\nerr 1\n[exit code 1]"));
    expect(resets()).toBe(0);
  });

  it("shows the error output of a result without its heading", () => {
    const { receive, command, result } = started();
    receive(...command("c", "make"));
    expect(receive(result("c", "out\n[stderr]\nerr\n[exit code 1]"))).toBe("$ make\nout\nerr\n[exit code 1] 1.5 s\n");
    receive(...command("d", "ls"));
    expect(receive(result("d", "[stderr]\nnone"))).toContain("$ ls\nnone\n");
  });

  it("separates parallel commands", () => {
    const { receive, command, output } = started();
    receive(...command("c", "one"), ...command("d", "two"), output("d", "of two\n"));
    expect(receive(output("c", "of one\n"))).toBe("$ one\nof one\n\n$ two\nof two\n");
  });

  it("shows every line of a command, and invisible characters", () => {
    const { receive, command } = started();
    expect(receive(...command("c", "echo \u202ea\r\ncat\rls"))).toBe("$ echo ⟨U+202E⟩a\n> cat⟨U+000D⟩ls\n");
  });

  it("shows Python, and commands of agent programs", () => {
    const { receive, call, result } = started();
    expect(receive(...call("p", "code_run_ipython_cell", { code: "if 1:\n  print(2)" }, "run_ipython_cell"))).toBe(
      ">>> if 1:\n...   print(2)\n",
    );
    receive(result("p", "2"));
    const ready = event("call.ready", {
      call: { id: "e", name: "code_execute", arguments: { command: ["bash", "-lc", "ls -a"] } },
      kind: "code",
      tool: "code_execute",
    });
    expect(receive(ready, result("e", "."))).toContain("$ bash -lc 'ls -a'\n.\n[exit code 0]");
  });

  it("omits rejected, pending, foreign and non-command calls", () => {
    const { receive, call, command, result, replayFromStart } = started();
    receive(...command("c", "rm -rf /"), result("c", "rejected", { refused: true }));
    receive(
      event("call.ready", { call: { id: "w", name: "x", arguments: {} }, kind: "code", tool: "run_shell_command" }),
    );
    receive(...call("t", "code_start_terminal", { name: "x" }, "start_terminal"));
    expect(replayFromStart()).toBe("");
  });

  it("marks output that was dropped", () => {
    const { receive, command, output } = started();
    receive(...command("c", "yes"));
    expect(receive(output("c", "y\n".repeat(20_000)))).toMatch(/^\$ yes\n\[more\]\n(y\n)+$/);
  });
});

describe("program output", () => {
  const filtered = (...pieces: string[]) => {
    const filter = new TerminalOutputFilter();
    return pieces.map((each) => filter.feed(each)).join("");
  };
  it("keeps colours and overwritten lines", () => {
    const text = "\u001b[1;32mgood\u001b[0m\n10%\r20%\u001b[K\n";
    expect(filtered(text)).toBe(text);
    expect(filtered(...text)).toBe(text);
  });
  it.each([
    ["the title", "\u001b]0;root\u0007"],
    ["the clipboard", "\u001b]52;c;ZXZpbA==\u001b\\"],
    ["a link", "\u001b]8;;https://example.org\u0007"],
    ["a device control string", "\u001bP1$r0m\u001b\\"],
    ["the cursor", "\u001b[5A\u001b[H\u001b[2J"],
    ["the other screen", "\u001b[?1049h"],
    ["a question to the terminal", "\u001b[c\u001b[6n"],
    ["a reset", "\u001bc"],
    ["a sequence of 8 bits", "\u009b2J"],
    ["the bell", "\u0007"],
  ])("cannot reach %s", (_, sequence) => {
    expect(filtered(`a${sequence}b`).replace("2J", "")).toBe("ab");
    expect(filtered(..."a", ...sequence, "b").replace("2J", "")).toBe("ab");
  });
  it("keeps text after an unterminated sequence", () => {
    expect(filtered("a\u001b", "[", "31")).toBe("a");
    expect(filtered("a\u001b]0;", "x".repeat(5000), "\nand on")).toContain("and on");
  });
});
