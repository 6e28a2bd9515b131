/** How a file is shown. */

import { ending } from "./paths";

export type Shape = "text" | "markdown" | "table" | "html" | "svg" | "image" | "pdf" | "audio" | "video" | "bytes";

const IMAGES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  avif: "image/avif",
  bmp: "image/bmp",
  ico: "image/x-icon",
};
const MEDIA: Record<string, string> = {
  mp3: "audio/mpeg",
  wav: "audio/wav",
  ogg: "audio/ogg",
  flac: "audio/flac",
  mp4: "video/mp4",
  webm: "video/webm",
  mov: "video/quicktime",
};

/** What its name promises; what is in it decides between text and bytes. */
export function shapeOf(path: string): Shape {
  const end = ending(path);
  if (end in IMAGES) return "image";
  if (end in MEDIA) return MEDIA[end]?.startsWith("video") ? "video" : "audio";
  if (end === "svg") return "svg";
  if (end === "pdf") return "pdf";
  if (end === "md" || end === "markdown") return "markdown";
  if (end === "csv" || end === "tsv" || end === "tab") return "table";
  if (end === "html" || end === "htm" || end === "xhtml") return "html";
  return "text";
}

/** The type under which the browser shows it; never one that a page of ours would run. */
export function typeOf(path: string): string {
  const end = ending(path);
  return (
    IMAGES[end] ?? MEDIA[end] ?? { svg: "image/svg+xml", pdf: "application/pdf" }[end] ?? "application/octet-stream"
  );
}

/** A page of a box without scripts and without any way to the network, for a frame without an origin. */
export function fenced(html: string): string {
  const policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data:";
  return `<!doctype html><meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="referrer" content="no-referrer">${html}`;
}
