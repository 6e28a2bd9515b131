import { useEffect, useState } from "react";
import { api } from "@/api/client";

/** Image from this server, fetched with credentials. Shows the name if it cannot be loaded. */
export function ServerImage({ path, alt }: { path: string; alt: string }) {
  const [source, setSource] = useState<string | null>(null);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    const leaving = new AbortController();
    let made: string | null = null;
    api
      .blob(path, { signal: leaving.signal })
      .then((content) => {
        if (leaving.signal.aborted) return;
        made = URL.createObjectURL(new Blob([content], { type: imageType(path) }));
        setSource(made);
      })
      .catch(() => {
        if (!leaving.signal.aborted) setFailed(true);
      });
    return () => {
      leaving.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [path]);
  if (failed) return <span>{alt || path}</span>;
  return source ? <img src={source} alt={alt} /> : null;
}

/** Output files have no media type; only SVG images need one. */
function imageType(path: string): string {
  return /\.svg(?:\?|$)/i.test(path) ? "image/svg+xml" : "";
}
