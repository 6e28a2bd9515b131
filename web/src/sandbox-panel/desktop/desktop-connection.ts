/** Desktop connection that reconnects by itself. */

import type RFB from "@novnc/novnc";
import { ApiError } from "@/api/client";
import { sleep } from "@/api/event-stream";
import { openSocket } from "@/api/open-socket";
import { translateServerText } from "@/ui/format/server-text";
import { reconnectDelayMs, socketCloseAction } from "../reconnect-policy";
import { sandboxApiPath } from "../sandbox-queries";
import { viewerId } from "../viewer-id";

export type DesktopState =
  | { name: "connecting"; attempt: number }
  | { name: "live" }
  | { name: "over" }
  | { name: "refused"; error: unknown };

export interface DesktopOptions {
  /** Whether the user's input is sent. */
  control: boolean;
  /** `match` resizes the desktop to the window, which requires control. */
  size: "fit" | "actual" | "match";
}

interface DesktopListeners {
  onState: (state: DesktopState) => void;
  onClipboard: (text: string) => void;
  /** Data URL of the last frame, set when the connection ends. */
  onLast: (picture: string) => void;
}

/** Connections shorter than this count as failures. */
const STABLE_MS = 10_000;
/** Maximum time until the display server completes its handshake. */
const HANDSHAKE_MS = 20_000;

export class DesktopConnection {
  private readonly target: HTMLElement;
  private readonly path: string;
  private readonly listeners: DesktopListeners;
  private readonly stop = new AbortController();
  private pauseController: AbortController | null = null;
  private endAttempt: (() => void) | null = null;
  private rfb: RFB | null = null;
  private options: DesktopOptions = { control: false, size: "fit" };

  constructor(target: HTMLElement, sandbox: string, listeners: DesktopListeners) {
    this.target = target;
    this.path = `${sandboxApiPath(sandbox)}/desktop`;
    this.listeners = listeners;
    void this.run();
  }

  /** Close permanently. */
  close(): void {
    this.stop.abort();
    this.pauseController?.abort();
    this.rfb?.disconnect();
    this.rfb = null;
  }

  /** Skip the pause before the next attempt. */
  reconnectNow(): void {
    this.pauseController?.abort();
  }

  /** The network was offline: an open connection may be dead unnoticed. */
  reconnect(): void {
    this.endAttempt?.();
    this.reconnectNow();
  }

  setOptions(options: DesktopOptions): void {
    this.options = options;
    this.apply();
  }

  focus(): void {
    this.rfb?.focus({ preventScroll: true });
  }

  /** Release the keyboard and all pressed keys. */
  releaseKeyboard(): void {
    if (!this.rfb) return;
    this.rfb.blur();
    this.rfb.viewOnly = true;
    this.apply();
  }

  paste(text: string): void {
    this.rfb?.clipboardPasteFrom(text);
  }

  press(keysym: number, code: string): void {
    this.rfb?.sendKey(keysym, code);
  }

  pressCtrlAltDel(): void {
    this.rfb?.sendCtrlAltDel();
  }

  private apply(): void {
    const { rfb } = this;
    if (!rfb) return;
    const { control, size } = this.options;
    rfb.viewOnly = !control;
    rfb.scaleViewport = size !== "actual";
    rfb.clipViewport = size === "actual";
    rfb.dragViewport = size === "actual" && !control;
    rfb.resizeSession = size === "match" && control;
  }

  private async run(): Promise<void> {
    const { signal } = this.stop;
    const { default: Client } = await import("@novnc/novnc");
    let failures = 0;
    while (!signal.aborted) {
      this.listeners.onState({ name: "connecting", attempt: failures });
      const startedAt = Date.now();
      let close: number;
      try {
        close = await this.attempt(Client);
      } catch (error) {
        if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
          this.listeners.onState(error.status === 404 ? { name: "over" } : { name: "refused", error });
          return;
        }
        close = 1006;
      }
      if (signal.aborted) return;
      const end = socketCloseAction(close);
      if (end === "stop") return this.listeners.onState({ name: "over" });
      if (end === "fail") return this.listeners.onState({ name: "refused", error: new Error(this.reason) });
      failures = Date.now() - startedAt > STABLE_MS ? 1 : failures + 1;
      this.listeners.onState({ name: "connecting", attempt: failures });
      this.pauseController = new AbortController();
      await sleep(reconnectDelayMs(failures), this.pauseController.signal);
    }
  }

  private reason = "";

  /** Run one connection until it ends; returns its close code. */
  private async attempt(Client: typeof RFB): Promise<number> {
    const socket = await openSocket(this.path, { viewer: viewerId() }, ["binary"]);
    if (this.stop.signal.aborted) {
      socket.close();
      return 1000;
    }
    let handshakeDone = false;
    let over = false;
    const closed = new Promise<number>((resolve) => {
      const finish = (code: number, reason: string) => {
        if (over) return;
        over = true;
        this.endAttempt = null;
        this.reason = reason ? translateServerText(reason) : `WebSocket ${code}`;
        // This event comes before noVNC's own, which clears the screen.
        if (handshakeDone) this.listeners.onLast(this.rfb?.toDataURL("image/jpeg", 0.7) ?? "");
        resolve(code);
      };
      this.endAttempt = () => {
        finish(1006, "");
        this.rfb?.disconnect();
      };
      socket.addEventListener("close", (event) => finish(event.code, event.reason));
    });
    this.target.replaceChildren();
    const rfb = new Client(this.target, socket, { shared: true });
    const timer = setTimeout(() => socket.close(4000), HANDSHAKE_MS);
    rfb.background = "transparent";
    rfb.focusOnClick = true;
    rfb.qualityLevel = 7;
    rfb.compressionLevel = 2;
    rfb.viewOnly = true;
    this.rfb = rfb;
    rfb.addEventListener("connect", () => {
      clearTimeout(timer);
      handshakeDone = true;
      this.apply();
      this.listeners.onState({ name: "live" });
    });
    rfb.addEventListener("clipboard", (event) => this.listeners.onClipboard(event.detail.text));
    const code = await closed;
    clearTimeout(timer);
    if (this.rfb === rfb) this.rfb = null;
    return code;
  }
}
