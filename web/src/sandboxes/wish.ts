/** What somebody wants of a new sandbox, and how the server is asked for it. */

import type { Schema } from "@/api/types";

export interface Wish {
  /** Empty for none. */
  kind: string;
  /** Empty for that of the kind. */
  image: string;
  snapshot: string;
  name: string;
  cpu: string;
  memory: string;
  /** Seconds; empty for as configured, `never` for none. */
  life: string;
}

export const BLANK: Wish = { kind: "", image: "", snapshot: "", name: "", cpu: "", memory: "", life: "" };
export const LIVES = ["", "1800", "3600", "14400", "86400", "604800", "never"];

export function bodyOf(wish: Wish): Partial<Schema<"CreateBody">> {
  const body: Partial<Schema<"CreateBody">> = {};
  if (wish.snapshot) body.snapshotId = wish.snapshot;
  else if (wish.image) body.image = { uri: wish.image };
  if (wish.kind && !wish.snapshot) body.extensions = { "paddock.kind": wish.kind };
  if (wish.name.trim()) body.name = wish.name.trim();
  const limits: Record<string, string> = {};
  if (wish.cpu.trim()) limits.cpu = wish.cpu.trim();
  if (wish.memory.trim()) limits.memory = wish.memory.trim();
  if (Object.keys(limits).length > 0) body.resourceLimits = limits;
  if (wish.life) body.timeout = wish.life === "never" ? null : Number(wish.life);
  return body;
}

/** The names of fields that are not written as the server reads them. */
export function mistakes(wish: Wish): Partial<Record<keyof Wish, true>> {
  const found: Partial<Record<keyof Wish, true>> = {};
  if (wish.cpu.trim() && !/^\d+(\.\d+)?m?$/.test(wish.cpu.trim())) found.cpu = true;
  if (wish.memory.trim() && !/^\d+(\.\d+)?([kKMGT]i?)?$/.test(wish.memory.trim())) found.memory = true;
  if (wish.name.trim() && !/^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/.test(wish.name.trim())) found.name = true;
  return found;
}
