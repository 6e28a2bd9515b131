/** The screens of all boxes, followed over one WebSocket. */

import { useEffect, useState } from "react";
import { ApiError } from "@/api/client";
import { openSocket } from "@/api/socket";
import { sleep } from "@/api/streams";
import { ending, pauseAfter } from "./retry";
import { picture } from "./wall";

export interface Shown {
  sandbox: string;
  /** An address of the browser's own. */
  source: string;
  width: number;
  height: number;
  /** Milliseconds since 1970. */
  at: number;
}

export interface WallState {
  screens: Record<string, Shown>;
  link: "connecting" | "live" | "lost";
  error: unknown;
}

/** Waits while the page is hidden. */
function untilSeen(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}

const NOTHING: WallState = { screens: {}, link: "connecting", error: null };

export function useWall(width: number): WallState {
  const [state, setState] = useState<WallState>(NOTHING);
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
      const found = picture(data);
      if (!found) return;
      const source = URL.createObjectURL(new Blob([found.jpeg], { type: "image/jpeg" }));
      const before = sources.get(found.sandbox);
      sources.set(found.sandbox, source);
      // The picture before is still being drawn until this one is.
      if (before) setTimeout(() => URL.revokeObjectURL(before), 2_000);
      const { sandbox, width: wide, height, at } = found;
      const next = { sandbox, source, width: wide, height, at: at * 1000 };
      setState((now) => ({ ...now, screens: { ...now.screens, [sandbox]: next } }));
    };
    const hear = (text: string) => {
      const words = JSON.parse(text) as { type: string; sandbox?: string };
      if (words.type !== "gone" || !words.sandbox) return;
      const gone = words.sandbox;
      drop(gone);
      setState((now) => ({
        ...now,
        screens: Object.fromEntries(Object.entries(now.screens).filter(([id]) => id !== gone)),
      }));
    };
    const once = async (): Promise<number> => {
      const opened = await openSocket("/v1/screens", { width, fps: 1 });
      socket = opened;
      opened.binaryType = "arraybuffer";
      if (stop.signal.aborted) opened.close();
      return new Promise((resolve) => {
        opened.addEventListener("open", () => {
          // Whoever went while we were away is not told of; all that are there come again.
          for (const sandbox of [...sources.keys()]) drop(sandbox);
          setState({ ...NOTHING, link: "live" });
        });
        opened.addEventListener("message", ({ data }: MessageEvent<ArrayBuffer | string>) => {
          if (typeof data === "string") hear(data);
          else show(data);
        });
        opened.addEventListener("close", ({ code }) => resolve(code));
      });
    };
    const run = async () => {
      let failures = 0;
      while (!stop.signal.aborted) {
        await untilSeen(stop.signal);
        const began = Date.now();
        try {
          const code = await once();
          if (stop.signal.aborted) return;
          if (document.hidden) continue;
          if (ending(code) === "mend") throw new ApiError(400, "INVALID_FRAME", `WebSocket ${code}`);
        } catch (error) {
          if (stop.signal.aborted) return;
          if (error instanceof ApiError && error.status >= 400 && error.status < 500)
            return setState((now) => ({ ...now, link: "lost", error }));
        }
        setState((now) => ({ ...now, link: "lost" }));
        failures = Date.now() - began > 10_000 ? 1 : failures + 1;
        await sleep(pauseAfter(failures), stop.signal);
      }
    };
    // A wall that nobody sees costs boxes and the network something for nothing.
    const seen = () => {
      if (document.hidden) socket?.close(1000);
    };
    document.addEventListener("visibilitychange", seen);
    void run();
    return () => {
      document.removeEventListener("visibilitychange", seen);
      stop.abort();
      socket?.close(1000);
      for (const sandbox of [...sources.keys()]) drop(sandbox);
    };
  }, [width]);
  return state;
}
