import { Download, FileQuestion } from "lucide-react";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "../controls/Button";
import { decodeUtf8Text, fileExtension, fileType, imageMediaType, parseDelimitedRows } from "../format/file-types";
import { formatBytes as sizeText } from "../format/formats";
import { EmptyState, ErrorState, LoadingBars } from "../layout/query-states";
import { CodeBlock } from "./CodeBlock";
import styles from "./ContentPreview.module.css";
import { Markdown } from "./Markdown";

/** Preview limits in bytes, for text and for images. */
const MAX_TEXT = 200_000;
const MAX_IMAGE = 30_000_000;
const MAX_ROWS = 500;

interface Props {
  name: string;
  size: number;
  /** Loads the first bytes, or all if there are fewer. */
  load: (maxBytes: number, signal: AbortSignal) => Promise<Blob>;
  onDownload: () => void;
  /** Resolves images in the text; null if there is none. */
  pictures?: (source: string) => string | null;
}

type PreviewContent = { type: "picture"; url: string } | { type: "text"; text: string } | { type: "other" };

/** Preview of a file's content. Nothing in it is executed or fetched. */
export function ContentPreview({ name, size, load, onDownload, pictures }: Props) {
  const { t } = useTranslation();
  const [content, setContent] = useState<PreviewContent | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [source, setSource] = useState(false);
  const sort = fileType(name);

  useEffect(() => {
    const stop = new AbortController();
    let url: string | null = null;
    setContent(null);
    setError(null);
    const loadPreview = async () => {
      if (sort === "image") {
        if (size > MAX_IMAGE) return setContent({ type: "other" });
        const blob = await load(MAX_IMAGE, stop.signal);
        if (stop.signal.aborted) return;
        url = URL.createObjectURL(new Blob([blob], { type: imageMediaType(name) }));
        return setContent({ type: "picture", url });
      }
      const bytes = new Uint8Array(await (await load(MAX_TEXT, stop.signal)).arrayBuffer());
      const text = decodeUtf8Text(bytes.subarray(0, MAX_TEXT), size <= MAX_TEXT);
      if (!stop.signal.aborted) setContent(text === null ? { type: "other" } : { type: "text", text });
    };
    loadPreview().catch((problem: unknown) => !stop.signal.aborted && setError(problem));
    return () => {
      stop.abort();
      if (url) URL.revokeObjectURL(url);
    };
  }, [name, size, sort, load]);

  const rendered = sort === "markdown" || sort === "table" || sort === "html";
  return (
    <div className={styles.preview}>
      <div className={styles.head}>
        <span className={styles.name}>{name}</span>
        <span className={styles.soft}>{sizeText(size)}</span>
        <span className={styles.grow} />
        {rendered && content?.type === "text" && (
          <Button size="small" aria-pressed={source} onClick={() => setSource(!source)}>
            {source ? t("preview.rendered") : t("preview.source")}
          </Button>
        )}
        <Button size="small" icon={Download} onClick={onDownload}>
          {t("common.download")}
        </Button>
      </div>
      <div className={styles.body}>
        {error ? (
          <ErrorState error={error} />
        ) : content === null ? (
          <LoadingBars />
        ) : content.type === "picture" ? (
          <img className={styles.picture} src={content.url} alt={name} />
        ) : content.type === "other" ? (
          <EmptyState icon={FileQuestion} title={t("preview.none")}>
            {t("preview.noneHint")}
          </EmptyState>
        ) : (
          <TextPreview name={name} text={content.text} source={source} pictures={pictures} />
        )}
        {content?.type === "text" && size > MAX_TEXT && (
          <p className={styles.soft}>{t("preview.cut", { shown: sizeText(MAX_TEXT), all: sizeText(size) })}</p>
        )}
      </div>
    </div>
  );
}

function TextPreview({
  name,
  text,
  source,
  pictures,
}: Pick<Props, "name" | "pictures"> & { text: string; source: boolean }) {
  const sort = source ? "text" : fileType(name);
  if (sort === "markdown") return <Markdown text={text} pictures={pictures} />;
  if (sort === "table")
    return (
      <TablePreview rows={parseDelimitedRows(text, fileExtension(name) === "tsv" ? "\t" : ",", MAX_ROWS)} name={name} />
    );
  // No scripts, forms or origin; the page's CSP blocks network access.
  if (sort === "html") return <iframe className={styles.page} sandbox="" srcDoc={text} title={name} />;
  return (
    <CodeBlock
      text={sort === "json" ? prettyJson(text) : text}
      label={fileExtension(name)}
      fileName={name.split("/").pop()}
    />
  );
}

function prettyJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function TablePreview({ rows, name }: { rows: string[][]; name: string }) {
  const { t } = useTranslation();
  const [head = [], ...rest] = rows;
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard. */}
      <section className={styles.cells} aria-label={name} tabIndex={0}>
        <table>
          <thead>
            <tr>
              {head.map((cell, column) => (
                <th key={column} scope="col">
                  {cell}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rest.map((row, line) => (
              <tr key={line}>
                {row.map((cell, column) => (
                  <td key={column}>{cell}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {rows.length >= MAX_ROWS && <p className={styles.soft}>{t("preview.firstRows", { count: MAX_ROWS })}</p>}
    </>
  );
}
