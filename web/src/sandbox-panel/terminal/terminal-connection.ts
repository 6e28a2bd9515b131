/** Terminal connection that reconnects without losing output. */

import { ApiError } from "@/api/client";
import { openSocket } from "@/api/socket";
import { sleep } from "@/api/streams";
import { serverText } from "@/ui/format/server-text";
import { closeAction, reconnectPause } from "../reconnect-policy";
import { sandboxPath } from "../sandbox-queries";
import { viewerId } from "../viewer-id";
import { encodeInput, parseOutput, type TerminalMessage } from "./terminal-messages";

export type TerminalState =
  | { name: "connecting"; attempt: number }
  | { name: "live" }
  | { name: "exited"; code: number | null }
  | { name: "refused"; error: unknown };

interface TerminalListeners {
  onState: (state: TerminalState) => void;
  onOutput: (bytes: Uint8Array, reset: boolean) => void;
  onSize: (cols: number, rows: number) => void;
  /** Typed input was refused: another person has control. Null when control is free. */
  onHeld: (by: string | null) => void;
  onTrouble: (text: string) => void;
}

const STABLE_MS = 10_000;
const PING_EVERY = 15_000;
/** A server that answers no ping for this long is considered gone. */
const SILENCE = 40_000;
/** Pasted text is split, so that no message is too large. */
const MAX_MESSAGE = 32 * 1024;

export class TerminalConnection {
  private readonly path: string;
  private readonly name: string;
  private readonly watching: TerminalListeners;
  private readonly stop = new AbortController();
  private hurry: AbortController | null = null;
  private socket: WebSocket | null = null;
  private giveUp: (() => void) | null = null;
  private offset = 0;
  private cols: number;
  private rows: number;

  constructor(sandbox: string, name: string, size: { cols: number; rows: number }, watching: TerminalListeners) {
    this.path = `${sandboxPath(sandbox)}/terminal`;
    this.name = name;
    this.cols = size.cols;
    this.rows = size.rows;
    this.watching = watching;
    void this.run();
  }

  close(): void {
    this.stop.abort();
    this.hurry?.abort();
    this.socket?.close(1000);
  }

  now(): void {
    this.hurry?.abort();
  }

  /** The network was offline: an open connection may be dead unnoticed. */
  renew(): void {
    this.giveUp?.();
    this.now();
  }

  type(text: string): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    for (let at = 0; at < text.length; at += MAX_MESSAGE)
      this.socket.send(encodeInput(text.slice(at, at + MAX_MESSAGE)));
  }

  resize(cols: number, rows: number): void {
    if (cols === this.cols && rows === this.rows) return;
    this.cols = cols;
    this.rows = rows;
    this.say({ type: "resize", cols, rows });
  }

  private say(words: Record<string, unknown>): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(words));
  }

  private async run(): Promise<void> {
    const { signal } = this.stop;
    let failures = 0;
    while (!signal.aborted) {
      this.watching.onState({ name: "connecting", attempt: failures });
      const began = Date.now();
      let end: { code: number; reason: string };
      try {
        end = await this.attempt();
      } catch (error) {
        if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
          this.watching.onState({ name: "refused", error });
          return;
        }
        end = { code: 1006, reason: "" };
      }
      if (signal.aborted || this.exited) return;
      if (closeAction(end.code) === "mend") {
        this.watching.onState({
          name: "refused",
          error: new Error(end.reason ? serverText(end.reason) : `WebSocket ${end.code}`),
        });
        return;
      }
      failures = Date.now() - began > STABLE_MS ? 1 : failures + 1;
      this.watching.onState({ name: "connecting", attempt: failures });
      this.hurry = new AbortController();
      await sleep(reconnectPause(failures), this.hurry.signal);
    }
  }

  private exited = false;

  private async attempt(): Promise<{ code: number; reason: string }> {
    const socket = await openSocket(this.path, {
      name: this.name,
      viewer: viewerId(),
      since: this.offset || undefined,
      cols: this.cols,
      rows: this.rows,
    });
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    if (this.stop.signal.aborted) socket.close(1000);
    let heard = Date.now();
    return new Promise((resolve) => {
      let over = false;
      const finish = (code: number, reason: string) => {
        if (over) return;
        over = true;
        clearInterval(timer);
        this.giveUp = null;
        if (this.socket === socket) this.socket = null;
        socket.close();
        resolve({ code, reason });
      };
      const timer = setInterval(() => {
        if (Date.now() - heard > SILENCE) finish(1006, "");
        else this.say({ type: "ping" });
      }, PING_EVERY);
      this.giveUp = () => finish(1006, "");
      socket.addEventListener("message", (event: MessageEvent<ArrayBuffer | string>) => {
        if (this.stop.signal.aborted || this.socket !== socket) return;
        heard = Date.now();
        if (typeof event.data === "string") this.hear(JSON.parse(event.data) as TerminalMessage);
        else {
          const found = parseOutput(event.data, this.offset);
          if (!found) return;
          this.offset = found.offset;
          this.watching.onOutput(found.bytes, found.reset);
        }
      });
      socket.addEventListener("close", (event) => finish(event.code, event.reason));
    });
  }

  private hear(words: TerminalMessage): void {
    const { watching } = this;
    if (words.type === "connected") {
      watching.onHeld(words.held ?? null);
      watching.onState({ name: "live" });
      if (words.cols && words.rows) watching.onSize(words.cols, words.rows);
    } else if (words.type === "size") watching.onSize(words.cols, words.rows);
    else if (words.type === "held") watching.onHeld(words.by);
    else if (words.type === "error") watching.onTrouble(words.error);
    else if (words.type === "exit") {
      this.exited = true;
      watching.onState({ name: "exited", code: words.exit_code });
    }
  }
}
