/** Renders the content of a file by type. Content is untrusted. */

import { useQuery } from "@tanstack/react-query";
import { ExternalLink } from "lucide-react";
import { useCallback, useEffect, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { SandboxView } from "@/session/types";
import { Markdown } from "@/ui/content/Markdown";
import { Button } from "@/ui/controls/Button";
import { formatBytes } from "@/ui/format/formats";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { detectDelimiter, parseCsv } from "./csv";
import styles from "./FilesView.module.css";
import { type FileDisplay, safeMediaType, sandboxedHtml } from "./file-types";
import { formatHexLines } from "./hex-dump";
import { type FileEntry, fileContentPath, readFileBlob } from "./sandbox-files";
import { fileExtension, joinPath, parentPath, safeDisplayName } from "./sandbox-paths";

/** Larger images and videos can only be downloaded. */
const MAX_MEDIA_BYTES = 64 * 1024 * 1024;

/** Image in the same directory or below; for others only the name is shown. */
const SIBLING_IMAGE = /^(?!.*\.\.)[\w][\w ./-]*$/u;

interface Props {
  sandbox: SandboxView;
  entry: FileEntry;
  shape: FileDisplay;
  text: string | null;
}

export function FileContentView({ sandbox, entry, shape, text }: Props) {
  const pictures = useCallback(
    (source: string) =>
      SIBLING_IMAGE.test(source) ? fileContentPath(sandbox.id, joinPath(parentPath(entry.path), source)) : null,
    [sandbox.id, entry.path],
  );
  if (shape === "markdown" && text !== null)
    return (
      <div className={styles.padded}>
        <Markdown text={text} pictures={pictures} />
      </div>
    );
  if (shape === "table" && text !== null) return <TableView text={text} path={entry.path} />;
  if (shape === "html" && text !== null) return <HtmlFrame text={text} name={entry.name} />;
  if (shape === "text" && text !== null) return <TextLines text={text} />;
  return <MediaView sandbox={sandbox} entry={entry} shape={shape} />;
}

const INITIAL_LINES = 2000;

export function TextLines({ text }: { text: string }) {
  const { t } = useTranslation();
  const [maxLines, setMaxLines] = useState(INITIAL_LINES);
  const lines = useMemo(() => text.replace(/\n$/, "").split("\n"), [text]);
  if (text === "") return <p className={styles.padded}>{t("sandboxPanel.files.emptyFile")}</p>;
  const shownLines = lines.slice(0, maxLines);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
    <section className={styles.lines} tabIndex={0} aria-label={t("sandboxPanel.files.text")}>
      <pre className={styles.numbers} aria-hidden>
        {shownLines.map((_, at) => at + 1).join("\n")}
      </pre>
      <pre className={styles.text}>{shownLines.join("\n")}</pre>
      {maxLines < lines.length && (
        <Button className={styles.more} size="small" onClick={() => setMaxLines(maxLines + 10 * INITIAL_LINES)}>
          {t("diff.more", { count: lines.length - maxLines })}
        </Button>
      )}
    </section>
  );
}

export function HexView({ head, size: all }: { head: Uint8Array; size: number }) {
  const { t } = useTranslation();
  return (
    <div className={styles.padded}>
      <p className={styles.soft}>{t("sandboxPanel.files.binary", { size: formatBytes(all) })}</p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard. */}
      <pre className={styles.hex} tabIndex={0}>
        {formatHexLines(head).join("\n")}
      </pre>
    </div>
  );
}

function TableView({ text, path }: { text: string; path: string }) {
  const { t } = useTranslation();
  const { rows, more } = useMemo(() => parseCsv(text, detectDelimiter(text, fileExtension(path))), [text, path]);
  const [head, ...body] = rows;
  if (!head) return <p className={styles.padded}>{t("sandboxPanel.files.emptyFile")}</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
    <section className={styles.sheet} tabIndex={0} aria-label={t("sandboxPanel.files.table")}>
      <table>
        <thead>
          <tr>
            {head.map((cell, at) => (
              <th key={at} scope="col">
                {cell}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {body.map((row, line) => (
            <tr key={line}>
              {row.map((cell, at) => (
                <td key={at} data-number={/^-?[\d.,]+%?$/.test(cell) || undefined}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {more && <p className={styles.cut}>{t("sandboxPanel.files.moreRows", { count: rows.length })}</p>}
    </section>
  );
}

/** Object URL of a blob, revoked when the blob changes. */
function useObjectUrl(content: Blob | null): string | null {
  const [source, setSource] = useState<string | null>(null);
  useEffect(() => {
    if (!content) return;
    const url = URL.createObjectURL(content);
    setSource(url);
    return () => {
      URL.revokeObjectURL(url);
      setSource(null);
    };
  }, [content]);
  return source;
}

function HtmlFrame({ text, name }: { text: string; name: string }) {
  const { t } = useTranslation();
  const content = useMemo(() => new Blob([sandboxedHtml(text)], { type: "text/html;charset=utf-8" }), [text]);
  const source = useObjectUrl(content);
  return (
    <div className={styles.page}>
      <p className={styles.cut}>{t("sandboxPanel.files.htmlNote")}</p>
      {source && <iframe sandbox="" src={source} title={safeDisplayName(name)} referrerPolicy="no-referrer" />}
    </div>
  );
}

function MediaView({ sandbox, entry, shape }: Omit<Props, "text">) {
  const { t } = useTranslation();
  const small = entry.size <= MAX_MEDIA_BYTES;
  const query = useQuery({
    queryKey: ["sandboxPanel", sandbox.id, "file", entry.path, "media", entry.modifiedAt],
    queryFn: async ({ signal }) =>
      (await readFileBlob(sandbox.id, entry.path, signal)).slice(0, MAX_MEDIA_BYTES, safeMediaType(entry.path)),
    enabled: small,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 10_000,
  });
  const source = useObjectUrl(query.data ?? null);
  const [broken, setBroken] = useState(false);
  if (!small || broken)
    return (
      <EmptyState title={broken ? t("sandboxPanel.files.broken") : t("sandboxPanel.files.tooLarge")}>
        {t("sandboxPanel.files.downloadIt")}
      </EmptyState>
    );
  if (query.error) return <ErrorState error={query.error} retry={() => void query.refetch()} />;
  if (!source) return <LoadingBars />;
  if (shape === "image" || shape === "svg")
    return (
      <div className={styles.picture}>
        <img src={source} alt={safeDisplayName(entry.name)} onError={() => setBroken(true)} />
      </div>
    );
  if (shape === "pdf")
    return (
      <EmptyState
        title={t("sandboxPanel.files.pdf")}
        action={
          <Button icon={ExternalLink} onClick={() => window.open(source, "_blank", "noopener")}>
            {t("sandboxPanel.files.open")}
          </Button>
        }
      />
    );
  return (
    <div className={styles.picture}>
      {shape === "video" ? (
        // biome-ignore lint/a11y/useMediaCaption: recordings of a sandbox have no captions.
        <video src={source} controls onError={() => setBroken(true)} />
      ) : (
        // biome-ignore lint/a11y/useMediaCaption: recordings of a sandbox have no captions.
        <audio src={source} controls onError={() => setBroken(true)} />
      )}
    </div>
  );
}
