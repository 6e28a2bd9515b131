/** Parts of the console that are fetched when they are needed first. */

import { type ComponentType, lazy } from "react";
import { fetchRaw } from "@/api/client";
import { sleep } from "@/api/streams";
import { meansAway, tellFailure } from "./connection";

const PAUSE = 2_000;

/** A part of the console. While the server is away it is waited for, as everything else is. */
export function part<Props>(load: () => Promise<{ default: ComponentType<Props> }>) {
  return lazy(() => patiently(load));
}

export async function patiently<T>(load: () => Promise<T>, pause = PAUSE): Promise<T> {
  for (;;) {
    try {
      return await load();
    } catch (error) {
      // A server that is there and has not got it is another one than this page came from.
      if (!(await isAway())) throw error;
      await sleep(pause);
    }
  }
}

async function isAway(): Promise<boolean> {
  try {
    await fetchRaw("GET", "/readyz");
    return false;
  } catch (error) {
    tellFailure(error);
    return meansAway(error);
  }
}
