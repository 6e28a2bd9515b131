/** Displayable parts of a tool's result. */

import { isRecord } from "./api";

export type ResultPart =
  | { type: "text"; text: string; label?: string }
  | { type: "json"; text: string }
  | { type: "image"; source: string }
  | { type: "audio"; source: string };

/** Types that browsers show as pictures without running anything; SVG can hold scripts and foreign addresses. */
const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/avif"];
const AUDIO_TYPES = /^audio\/(mpeg|mp4|ogg|wav|x-wav|webm|flac|aac)$/;
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

export function resultParts(result: Record<string, unknown>): ResultPart[] {
  const content = Array.isArray(result.content) ? result.content : [];
  return content.map((part): ResultPart => (isRecord(part) && knownPart(part)) || unknownPart(part));
}

function knownPart(part: Record<string, unknown>): ResultPart | null {
  if (part.type === "text" && typeof part.text === "string") return { type: "text", text: part.text };
  if (part.type === "image" || part.type === "audio") return mediaPart(part.mimeType, part.data);
  if (part.type === "resource" && isRecord(part.resource)) {
    const { uri, text, mimeType, blob } = part.resource;
    if (typeof text === "string") return { type: "text", text, label: typeof uri === "string" ? uri : undefined };
    return mediaPart(mimeType, blob);
  }
  return null;
}

function mediaPart(mimeType: unknown, data: unknown): ResultPart | null {
  if (typeof mimeType !== "string" || typeof data !== "string" || !BASE64.test(data)) return null;
  const source = `data:${mimeType};base64,${data}`;
  if (IMAGE_TYPES.includes(mimeType)) return { type: "image", source };
  return AUDIO_TYPES.test(mimeType) ? { type: "audio", source } : null;
}

function unknownPart(part: unknown): ResultPart {
  return { type: "json", text: JSON.stringify(part, null, 2) ?? "" };
}
