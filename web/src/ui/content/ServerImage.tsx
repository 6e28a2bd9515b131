import { useEffect, useState } from "react";
import { api } from "@/api/client";

/** Image from this server, fetched with credentials. Shows the name if it cannot be loaded. */
export function ServerImage({ path, alt }: { path: string; alt: string }) {
  const [source, setSource] = useState<string | null>(null);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    const controller = new AbortController();
    let url: string | null = null;
    api
      .blob(path, { signal: controller.signal })
      .then((content) => {
        if (controller.signal.aborted) return;
        url = URL.createObjectURL(new Blob([content], { type: imageType(path) }));
        setSource(url);
      })
      .catch(() => {
        if (!controller.signal.aborted) setFailed(true);
      });
    return () => {
      controller.abort();
      if (url) URL.revokeObjectURL(url);
    };
  }, [path]);
  if (failed) return <span>{alt || path}</span>;
  return source ? <img src={source} alt={alt} /> : null;
}

/** Output files have no media type; only SVG images need one. */
function imageType(path: string): string {
  return /\.svg(?:\?|$)/i.test(path) ? "image/svg+xml" : "";
}
