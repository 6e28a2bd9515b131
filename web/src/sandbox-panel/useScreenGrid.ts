/** Screens of all sandboxes over one WebSocket. */

import { useEffect, useState } from "react";
import { ApiError } from "@/api/client";
import { sleep } from "@/api/event-stream";
import { openSocket } from "@/api/open-socket";
import { reconnectDelayMs, socketCloseAction } from "./reconnect-policy";
import { parseScreenPicture } from "./screen-picture";

export interface ShownScreen {
  sandbox: string;
  /** Object URL of the picture. */
  source: string;
  width: number;
  height: number;
  /** Milliseconds since 1970. */
  at: number;
}

export interface ScreenGridState {
  screens: Record<string, ShownScreen>;
  link: "connecting" | "live" | "lost";
  error: unknown;
}

/** Wait while the page is hidden. */
function waitUntilVisible(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const resolveIfVisible = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", resolveIfVisible);
      resolve();
    };
    document.addEventListener("visibilitychange", resolveIfVisible);
    signal.addEventListener("abort", resolveIfVisible);
    resolveIfVisible();
  });
}

const EMPTY_STATE: ScreenGridState = { screens: {}, link: "connecting", error: null };

export function useScreenGrid(width: number): ScreenGridState {
  const [state, setState] = useState<ScreenGridState>(EMPTY_STATE);
  useEffect(() => {
    const stop = new AbortController();
    const sources = new Map<string, string>();
    let socket: WebSocket | null = null;
    const drop = (sandbox: string) => {
      const source = sources.get(sandbox);
      sources.delete(sandbox);
      if (source) URL.revokeObjectURL(source);
    };
    const show = (data: ArrayBuffer) => {
      const found = parseScreenPicture(data);
      if (!found) return;
      const source = URL.createObjectURL(new Blob([found.jpeg], { type: "image/jpeg" }));
      const before = sources.get(found.sandbox);
      sources.set(found.sandbox, source);
      // The previous picture is shown until this one is drawn.
      if (before) setTimeout(() => URL.revokeObjectURL(before), 2_000);
      const { sandbox, width: pictureWidth, height, at } = found;
      const next = { sandbox, source, width: pictureWidth, height, at: at * 1000 };
      setState((current) => ({ ...current, screens: { ...current.screens, [sandbox]: next } }));
    };
    const receiveText = (text: string) => {
      const message = JSON.parse(text) as { type: string; sandbox?: string };
      if (message.type !== "gone" || !message.sandbox) return;
      const removed = message.sandbox;
      drop(removed);
      setState((current) => ({
        ...current,
        screens: Object.fromEntries(Object.entries(current.screens).filter(([id]) => id !== removed)),
      }));
    };
    const connectOnce = async (): Promise<number> => {
      const opened = await openSocket("/v1/screens", { width, fps: 1 });
      socket = opened;
      opened.binaryType = "arraybuffer";
      if (stop.signal.aborted) opened.close();
      return new Promise((resolve) => {
        opened.addEventListener("open", () => {
          // Removals during a disconnect are not reported; all present screens are sent again.
          for (const sandbox of [...sources.keys()]) drop(sandbox);
          setState({ ...EMPTY_STATE, link: "live" });
        });
        opened.addEventListener("message", ({ data }: MessageEvent<ArrayBuffer | string>) => {
          if (typeof data === "string") receiveText(data);
          else show(data);
        });
        opened.addEventListener("close", ({ code }) => resolve(code));
      });
    };
    const run = async () => {
      let failures = 0;
      while (!stop.signal.aborted) {
        await waitUntilVisible(stop.signal);
        const startedAt = Date.now();
        try {
          const code = await connectOnce();
          if (stop.signal.aborted) return;
          if (document.hidden) continue;
          if (socketCloseAction(code) === "fail") throw new ApiError(400, "INVALID_FRAME", `WebSocket ${code}`);
        } catch (error) {
          if (stop.signal.aborted) return;
          if (error instanceof ApiError && error.status >= 400 && error.status < 500)
            return setState((current) => ({ ...current, link: "lost", error }));
        }
        setState((current) => ({ ...current, link: "lost" }));
        failures = Date.now() - startedAt > 10_000 ? 1 : failures + 1;
        await sleep(reconnectDelayMs(failures), stop.signal);
      }
    };
    // A hidden grid would cost the sandboxes and the network for nothing.
    const closeWhenHidden = () => {
      if (document.hidden) socket?.close(1000);
    };
    document.addEventListener("visibilitychange", closeWhenHidden);
    void run();
    return () => {
      document.removeEventListener("visibilitychange", closeWhenHidden);
      stop.abort();
      socket?.close(1000);
      for (const sandbox of [...sources.keys()]) drop(sandbox);
    };
  }, [width]);
  return state;
}
