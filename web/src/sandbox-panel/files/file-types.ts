/** How a file is displayed. */

import { fileExtension } from "./sandbox-paths";

export type FileDisplay =
  | "text"
  | "markdown"
  | "table"
  | "html"
  | "svg"
  | "image"
  | "pdf"
  | "audio"
  | "video"
  | "bytes";

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

/** Display type by file name; the content decides between text and bytes. */
export function fileDisplay(path: string): FileDisplay {
  const end = fileExtension(path);
  if (end in IMAGES) return "image";
  if (end in MEDIA) return MEDIA[end]?.startsWith("video") ? "video" : "audio";
  if (end === "svg") return "svg";
  if (end === "pdf") return "pdf";
  if (end === "md" || end === "markdown") return "markdown";
  if (end === "csv" || end === "tsv" || end === "tab") return "table";
  if (end === "html" || end === "htm" || end === "xhtml") return "html";
  return "text";
}

/** Media type for the browser; never one that would execute. */
export function safeMediaType(path: string): string {
  const end = fileExtension(path);
  return (
    IMAGES[end] ?? MEDIA[end] ?? { svg: "image/svg+xml", pdf: "application/pdf" }[end] ?? "application/octet-stream"
  );
}

/** HTML of a sandbox without scripts or network access, for an iframe without origin. */
export function sandboxedHtml(html: string): string {
  const policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data:";
  return `<!doctype html><meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="referrer" content="no-referrer">${html}`;
}
