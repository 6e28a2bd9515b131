import { Download, FileQuestion } from "lucide-react";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "./Button";
import { Code } from "./Code";
import { decoded, ending, pictureType, rowsOf, sortOf } from "./kinds";
import { Markdown } from "./Markdown";
import styles from "./Preview.module.css";
import { Empty, Failed, Loading } from "./states";
import { size as sizeText } from "./Time";

/** Bytes of a text that are shown, and of a picture. */
const MOST_TEXT = 200_000;
const MOST_PICTURE = 30_000_000;
const MOST_ROWS = 500;

interface Props {
  name: string;
  size: number;
  /** Its first bytes, or all of them where it is shorter. */
  load: (most: number, signal: AbortSignal) => Promise<Blob>;
  onDownload: () => void;
  /** For text that shows pictures: where they are; null if nowhere. */
  pictures?: (source: string) => string | null;
}

type Content = { type: "picture"; url: string } | { type: "text"; text: string } | { type: "other" };

/** What is in a file. Nothing in it is run, and nothing is fetched because of it. */
export function Preview({ name, size, load, onDownload, pictures }: Props) {
  const { t } = useTranslation();
  const [content, setContent] = useState<Content | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [source, setSource] = useState(false);
  const sort = sortOf(name);

  useEffect(() => {
    const stop = new AbortController();
    let url: string | null = null;
    setContent(null);
    setError(null);
    const look = async () => {
      if (sort === "image") {
        if (size > MOST_PICTURE) return setContent({ type: "other" });
        const blob = await load(MOST_PICTURE, stop.signal);
        if (stop.signal.aborted) return;
        url = URL.createObjectURL(new Blob([blob], { type: pictureType(name) }));
        return setContent({ type: "picture", url });
      }
      const bytes = new Uint8Array(await (await load(MOST_TEXT, stop.signal)).arrayBuffer());
      const text = decoded(bytes.subarray(0, MOST_TEXT), size <= MOST_TEXT);
      if (!stop.signal.aborted) setContent(text === null ? { type: "other" } : { type: "text", text });
    };
    look().catch((problem: unknown) => !stop.signal.aborted && setError(problem));
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
          <Failed error={error} />
        ) : content === null ? (
          <Loading />
        ) : content.type === "picture" ? (
          <img className={styles.picture} src={content.url} alt={name} />
        ) : content.type === "other" ? (
          <Empty icon={FileQuestion} title={t("preview.none")}>
            {t("preview.noneHint")}
          </Empty>
        ) : (
          <Shown name={name} text={content.text} source={source} pictures={pictures} />
        )}
        {content?.type === "text" && size > MOST_TEXT && (
          <p className={styles.soft}>{t("preview.cut", { shown: sizeText(MOST_TEXT), all: sizeText(size) })}</p>
        )}
      </div>
    </div>
  );
}

function Shown({ name, text, source, pictures }: Pick<Props, "name" | "pictures"> & { text: string; source: boolean }) {
  const sort = source ? "text" : sortOf(name);
  if (sort === "markdown") return <Markdown text={text} pictures={pictures} />;
  if (sort === "table")
    return <Cells rows={rowsOf(text, ending(name) === "tsv" ? "\t" : ",", MOST_ROWS)} name={name} />;
  // No scripts, no forms, no origin of its own; the page's policy keeps it from fetching anything.
  if (sort === "html") return <iframe className={styles.page} sandbox="" srcDoc={text} title={name} />;
  return <Code text={sort === "json" ? pretty(text) : text} label={ending(name)} fileName={name.split("/").pop()} />;
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function Cells({ rows, name }: { rows: string[][]; name: string }) {
  const { t } = useTranslation();
  const [head = [], ...rest] = rows;
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard. */}
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
      {rows.length >= MOST_ROWS && <p className={styles.soft}>{t("preview.firstRows", { count: MOST_ROWS })}</p>}
    </>
  );
}
