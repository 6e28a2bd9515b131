/** Writes an agent's commands to a terminal: appends if possible, else rewrites everything. */

import { revealInvisibleCharacters } from "@/chat/approvals/invisible-characters";
import type { AgentCommand } from "./agent-commands";
import { MAX_OUTPUT_CHARACTERS } from "./agent-commands";
import { TerminalOutputFilter } from "./terminal-output-filter";

export interface TerminalSink {
  write: (text: string) => void;
  reset: () => void;
}

export interface AgentTerminalTexts {
  exit: (code: number, seconds: string) => string;
  ended: (seconds: string) => string;
  failed: (seconds: string) => string;
  cut: string;
  duration: (seconds: number) => string;
}

interface WrittenCommand {
  id: string;
  text: string;
  filter: TerminalOutputFilter;
  /** Live output characters written: all, and without spaces. */
  outputLength: number;
  nonSpaceLength: number;
  outputMissed: boolean;
  over: boolean;
  endsLine: boolean;
}

const PROMPT = "\u001b[1;36m";
const SOFT = "\u001b[2m";
const GOOD = "\u001b[32m";
const BAD = "\u001b[31m";
const OFF = "\u001b[0m";

export class AgentTerminalLog {
  private writtenCommands: WrittenCommand[] = [];

  constructor(
    private readonly sink: TerminalSink,
    private readonly texts: AgentTerminalTexts,
  ) {}

  /** Update the terminal. Returns whether it was rewritten. */
  show(commands: readonly AgentCommand[]): boolean {
    const rewritten = !this.canAppend(commands);
    if (rewritten) {
      this.sink.reset();
      this.writtenCommands = [];
    }
    for (const [index, command] of commands.entries()) {
      const written = this.writtenCommands[index] ?? this.startCommand(command);
      if (!written.over) this.continueCommand(written, command);
    }
    return rewritten;
  }

  /** Whether the new text can be appended. */
  private canAppend(commands: readonly AgentCommand[]): boolean {
    if (this.writtenCommands.length > commands.length) return false;
    return this.writtenCommands.every((written, index) => {
      const command = commands[index];
      if (!command || command.id !== written.id || command.text !== written.text) return false;
      if (written.over) return command.result !== null;
      const last = index === this.writtenCommands.length - 1;
      // Parallel commands share one terminal: only the newest can be appended to.
      if (command.result === null) return last || command.outputLength === written.outputLength;
      return last && this.isComplete(written, command);
    });
  }

  /** Whether the live output was complete. */
  private isComplete(written: WrittenCommand, command: AgentCommand): boolean {
    if (written.outputMissed || command.outputLength !== written.outputLength) return false;
    return (
      written.outputLength === 0 || written.nonSpaceLength === countNonSpace((command.result ?? "").replace(STDERR, ""))
    );
  }

  private startCommand(command: AgentCommand): WrittenCommand {
    const first = this.writtenCommands.length === 0;
    const lines = (revealInvisibleCharacters(command.text.replace(/\r\n/g, "\n").trimEnd()) ?? command.text.trimEnd())
      .replaceAll("\r", "⟨U+000D⟩")
      .split("\n");
    const more = command.prompt === "$" ? ">" : "...";
    const promptLines = lines
      .map((line, index) => `${PROMPT}${index ? more : command.prompt}${OFF} ${line}`)
      .join("\n");
    const directoryLine = command.directory
      ? `${SOFT}${revealInvisibleCharacters(command.directory) ?? command.directory}${OFF}\n`
      : "";
    this.sink.write(`${first ? "" : "\n"}${directoryLine.replace(/[\r\n]+(?=.)/g, " ")}${promptLines}\n`);
    const { id, text } = command;
    const filter = new TerminalOutputFilter();
    const written = {
      id,
      text,
      filter,
      outputLength: 0,
      nonSpaceLength: 0,
      outputMissed: false,
      over: false,
      endsLine: true,
    };
    this.writtenCommands.push(written);
    return written;
  }

  private continueCommand(written: WrittenCommand, command: AgentCommand): void {
    if (command.result === null) {
      const newLength = command.outputLength - written.outputLength;
      if (newLength <= 0) return;
      if (newLength > command.output.length) {
        written.outputMissed = true;
        this.write(written, `${SOFT}${this.texts.cut}${OFF}\n`);
      }
      const piece = command.output.slice(-newLength);
      written.outputLength = command.outputLength;
      written.nonSpaceLength += countNonSpace(piece);
      this.write(written, written.filter.feed(piece));
      return;
    }
    if (written.outputLength === 0) {
      // A terminal shows both streams without headings.
      const result = command.result.replace(STDERR, "$1");
      const cut = result.length > MAX_OUTPUT_CHARACTERS;
      this.write(written, written.filter.feed(cut ? result.slice(0, MAX_OUTPUT_CHARACTERS) : result));
      if (cut) this.write(written, `\n${SOFT}${this.texts.cut}${OFF}`);
    }
    written.over = true;
    const seconds = command.seconds === null ? "" : this.texts.duration(command.seconds);
    const { exit, state } = command;
    const statusText =
      exit !== null ? this.texts.exit(exit, seconds) : this.texts[state === "failed" ? "failed" : "ended"](seconds);
    this.sink.write(
      `${OFF}${written.endsLine ? "" : "\n"}${state === "failed" ? BAD : GOOD}${statusText.trim()}${OFF}\n`,
    );
  }

  private write(written: WrittenCommand, text: string): void {
    if (!text) return;
    this.sink.write(text);
    written.endsLine = text.endsWith("\n");
  }
}

/** Heading that the result puts before stderr. */
const STDERR = /(^|\n)\[stderr\]\n/g;

function countNonSpace(text: string): number {
  return text.replace(/\s+/g, "").length;
}
