/** Terminal connection that reconnects without losing output. */

import { ApiError } from "@/api/client";
import { sleep } from "@/api/event-stream";
import { openSocket } from "@/api/open-socket";
import { translateServerText } from "@/ui/format/server-text";
import { reconnectDelayMs, socketCloseAction } from "../reconnect-policy";
import { sandboxApiPath } from "../sandbox-queries";
import { viewerId } from "../viewer-id";
import { encodeTerminalInput, parseTerminalOutput, type TerminalMessage } from "./terminal-messages";

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
  onInputHeld: (by: string | null) => void;
  onError: (text: string) => void;
}

const STABLE_MS = 10_000;
const PING_INTERVAL_MS = 15_000;
/** A server that answers no ping for this long is considered gone. */
const SILENCE_TIMEOUT_MS = 40_000;
/** Pasted text is split, so that no message is too large. */
const MAX_MESSAGE = 32 * 1024;

export class TerminalConnection {
  private readonly path: string;
  private readonly name: string;
  private readonly listeners: TerminalListeners;
  private readonly stop = new AbortController();
  private pauseController: AbortController | null = null;
  private socket: WebSocket | null = null;
  private endAttempt: (() => void) | null = null;
  private offset = 0;
  private cols: number;
  private rows: number;

  constructor(sandbox: string, name: string, size: { cols: number; rows: number }, listeners: TerminalListeners) {
    this.path = `${sandboxApiPath(sandbox)}/terminal`;
    this.name = name;
    this.cols = size.cols;
    this.rows = size.rows;
    this.listeners = listeners;
    void this.run();
  }

  close(): void {
    this.stop.abort();
    this.pauseController?.abort();
    this.socket?.close(1000);
  }

  reconnectNow(): void {
    this.pauseController?.abort();
  }

  /** The network was offline: an open connection may be dead unnoticed. */
  reconnect(): void {
    this.endAttempt?.();
    this.reconnectNow();
  }

  type(text: string): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    for (let at = 0; at < text.length; at += MAX_MESSAGE)
      this.socket.send(encodeTerminalInput(text.slice(at, at + MAX_MESSAGE)));
  }

  resize(cols: number, rows: number): void {
    if (cols === this.cols && rows === this.rows) return;
    this.cols = cols;
    this.rows = rows;
    this.sendMessage({ type: "resize", cols, rows });
  }

  private sendMessage(message: Record<string, unknown>): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  private async run(): Promise<void> {
    const { signal } = this.stop;
    let failures = 0;
    while (!signal.aborted) {
      this.listeners.onState({ name: "connecting", attempt: failures });
      const startedAt = Date.now();
      let end: { code: number; reason: string };
      try {
        end = await this.attempt();
      } catch (error) {
        if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
          this.listeners.onState({ name: "refused", error });
          return;
        }
        end = { code: 1006, reason: "" };
      }
      if (signal.aborted || this.exited) return;
      if (socketCloseAction(end.code) === "fail") {
        this.listeners.onState({
          name: "refused",
          error: new Error(end.reason ? translateServerText(end.reason) : `WebSocket ${end.code}`),
        });
        return;
      }
      failures = Date.now() - startedAt > STABLE_MS ? 1 : failures + 1;
      this.listeners.onState({ name: "connecting", attempt: failures });
      this.pauseController = new AbortController();
      await sleep(reconnectDelayMs(failures), this.pauseController.signal);
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
    let lastMessageAt = Date.now();
    return new Promise((resolve) => {
      let over = false;
      const finish = (code: number, reason: string) => {
        if (over) return;
        over = true;
        clearInterval(timer);
        this.endAttempt = null;
        if (this.socket === socket) this.socket = null;
        socket.close();
        resolve({ code, reason });
      };
      const timer = setInterval(() => {
        if (Date.now() - lastMessageAt > SILENCE_TIMEOUT_MS) finish(1006, "");
        else this.sendMessage({ type: "ping" });
      }, PING_INTERVAL_MS);
      this.endAttempt = () => finish(1006, "");
      socket.addEventListener("message", (event: MessageEvent<ArrayBuffer | string>) => {
        if (this.stop.signal.aborted || this.socket !== socket) return;
        lastMessageAt = Date.now();
        if (typeof event.data === "string") this.receiveMessage(JSON.parse(event.data) as TerminalMessage);
        else {
          const found = parseTerminalOutput(event.data, this.offset);
          if (!found) return;
          this.offset = found.offset;
          this.listeners.onOutput(found.bytes, found.reset);
        }
      });
      socket.addEventListener("close", (event) => finish(event.code, event.reason));
    });
  }

  private receiveMessage(message: TerminalMessage): void {
    const { listeners } = this;
    if (message.type === "connected") {
      listeners.onInputHeld(message.held ?? null);
      listeners.onState({ name: "live" });
      if (message.cols && message.rows) listeners.onSize(message.cols, message.rows);
    } else if (message.type === "size") listeners.onSize(message.cols, message.rows);
    else if (message.type === "held") listeners.onInputHeld(message.by);
    else if (message.type === "error") listeners.onError(message.error);
    else if (message.type === "exit") {
      this.exited = true;
      listeners.onState({ name: "exited", code: message.exit_code });
    }
  }
}
