import { useEffect, useState } from "react";
import { api } from "@/api/client";

/** A picture of this server, which is asked for as everything else is. What cannot be had is told by its name. */
export function Picture({ path, alt }: { path: string; alt: string }) {
  const [source, setSource] = useState<string | null>(null);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    const leaving = new AbortController();
    let made: string | null = null;
    api
      .blob(path, { signal: leaving.signal })
      .then((content) => {
        if (leaving.signal.aborted) return;
        made = URL.createObjectURL(new Blob([content], { type: typeOf(path) }));
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

/** Deliverables come without a type; of pictures only drawings need one. */
function typeOf(path: string): string {
  return /\.svg(?:\?|$)/i.test(path) ? "image/svg+xml" : "";
}
