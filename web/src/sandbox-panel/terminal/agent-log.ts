/** Writes an agent's commands to a terminal: appends if possible, else rewrites everything. */

import { revealInvisible } from "@/chat/approvals/invisible-characters";
import type { AgentCommand } from "./agent-commands";
import { MAX_TEXT } from "./agent-commands";
import { OutputFilter } from "./output-filter";

export interface TerminalSink {
  write: (text: string) => void;
  reset: () => void;
}

export interface LogTexts {
  exit: (code: number, seconds: string) => string;
  ended: (seconds: string) => string;
  failed: (seconds: string) => string;
  cut: string;
  duration: (seconds: number) => string;
}

interface WrittenCommand {
  id: string;
  text: string;
  filter: OutputFilter;
  /** Live output characters written: all, and without spaces. */
  heard: number;
  letters: number;
  missed: boolean;
  over: boolean;
  endsLine: boolean;
}

const PROMPT = "\u001b[1;36m";
const SOFT = "\u001b[2m";
const GOOD = "\u001b[32m";
const BAD = "\u001b[31m";
const OFF = "\u001b[0m";

export class AgentLog {
  private written: WrittenCommand[] = [];

  constructor(
    private readonly sink: TerminalSink,
    private readonly words: LogTexts,
  ) {}

  /** Update the terminal. Returns whether it was rewritten. */
  show(commands: readonly AgentCommand[]): boolean {
    const rewritten = !this.follows(commands);
    if (rewritten) {
      this.sink.reset();
      this.written = [];
    }
    for (const [place, command] of commands.entries()) {
      const known = this.written[place] ?? this.begin(command);
      if (!known.over) this.goOn(known, command);
    }
    return rewritten;
  }

  /** Whether the new text can be appended. */
  private follows(commands: readonly AgentCommand[]): boolean {
    if (this.written.length > commands.length) return false;
    return this.written.every((known, place) => {
      const command = commands[place];
      if (!command || command.id !== known.id || command.text !== known.text) return false;
      if (known.over) return command.result !== null;
      const last = place === this.written.length - 1;
      // Parallel commands share one terminal: only the newest can be appended to.
      if (command.result === null) return last || command.heard === known.heard;
      return last && this.isComplete(known, command);
    });
  }

  /** Whether the live output was complete. */
  private isComplete(known: WrittenCommand, command: AgentCommand): boolean {
    if (known.missed || command.heard !== known.heard) return false;
    return known.heard === 0 || known.letters === countNonSpace((command.result ?? "").replace(STDERR, ""));
  }

  private begin(command: AgentCommand): WrittenCommand {
    const first = this.written.length === 0;
    const lines = (revealInvisible(command.text.replace(/\r\n/g, "\n").trimEnd()) ?? command.text.trimEnd())
      .replaceAll("\r", "⟨U+000D⟩")
      .split("\n");
    const more = command.prompt === "$" ? ">" : "...";
    const shown = lines.map((line, place) => `${PROMPT}${place ? more : command.prompt}${OFF} ${line}`).join("\n");
    const where = command.directory ? `${SOFT}${revealInvisible(command.directory) ?? command.directory}${OFF}\n` : "";
    this.sink.write(`${first ? "" : "\n"}${where.replace(/[\r\n]+(?=.)/g, " ")}${shown}\n`);
    const { id, text } = command;
    const filter = new OutputFilter();
    const known = { id, text, filter, heard: 0, letters: 0, missed: false, over: false, endsLine: true };
    this.written.push(known);
    return known;
  }

  private goOn(known: WrittenCommand, command: AgentCommand): void {
    if (command.result === null) {
      const fresh = command.heard - known.heard;
      if (fresh <= 0) return;
      if (fresh > command.output.length) {
        known.missed = true;
        this.write(known, `${SOFT}${this.words.cut}${OFF}\n`);
      }
      const piece = command.output.slice(-fresh);
      known.heard = command.heard;
      known.letters += countNonSpace(piece);
      this.write(known, known.filter.feed(piece));
      return;
    }
    if (known.heard === 0) {
      // A terminal shows both streams without headings.
      const result = command.result.replace(STDERR, "$1");
      const cut = result.length > MAX_TEXT;
      this.write(known, known.filter.feed(cut ? result.slice(0, MAX_TEXT) : result));
      if (cut) this.write(known, `\n${SOFT}${this.words.cut}${OFF}`);
    }
    known.over = true;
    const seconds = command.seconds === null ? "" : this.words.duration(command.seconds);
    const { exit, state } = command;
    const said =
      exit !== null ? this.words.exit(exit, seconds) : this.words[state === "failed" ? "failed" : "ended"](seconds);
    this.sink.write(`${OFF}${known.endsLine ? "" : "\n"}${state === "failed" ? BAD : GOOD}${said.trim()}${OFF}\n`);
  }

  private write(known: WrittenCommand, text: string): void {
    if (!text) return;
    this.sink.write(text);
    known.endsLine = text.endsWith("\n");
  }
}

/** Heading that the result puts before stderr. */
const STDERR = /(^|\n)\[stderr\]\n/g;

function countNonSpace(text: string): number {
  return text.replace(/\s+/g, "").length;
}
