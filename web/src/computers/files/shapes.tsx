/** How the content of a file looks, by what it is. Nothing of it is trusted. */

import { useQuery } from "@tanstack/react-query";
import { ExternalLink } from "lucide-react";
import { useCallback, useEffect, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { BoxView } from "@/session/types";
import { Button } from "@/ui/Button";
import { Markdown } from "@/ui/Markdown";
import { Empty, Failed, Loading } from "@/ui/states";
import { size } from "@/ui/Time";
import { blob, contentPath, type Entry } from "./box-files";
import { hexLines } from "./bytes";
import { dividerOf, parseTable } from "./csv";
import styles from "./Files.module.css";
import { fenced, type Shape, typeOf } from "./kinds";
import { ending, join, parent, shown } from "./paths";

/** Larger pictures and films are only for download. */
const LARGEST = 64 * 1024 * 1024;

/** A picture beside the file or below that; of others only the name is shown. */
const BESIDE = /^(?!.*\.\.)[\w][\w ./-]*$/u;

interface Props {
  box: BoxView;
  entry: Entry;
  shape: Shape;
  text: string | null;
}

export function Content({ box, entry, shape, text }: Props) {
  const pictures = useCallback(
    (source: string) => (BESIDE.test(source) ? contentPath(box.id, join(parent(entry.path), source)) : null),
    [box.id, entry.path],
  );
  if (shape === "markdown" && text !== null)
    return (
      <div className={styles.padded}>
        <Markdown text={text} pictures={pictures} />
      </div>
    );
  if (shape === "table" && text !== null) return <Sheet text={text} path={entry.path} />;
  if (shape === "html" && text !== null) return <Html text={text} name={entry.name} />;
  if (shape === "text" && text !== null) return <TextLines text={text} />;
  return <Media box={box} entry={entry} shape={shape} />;
}

const AT_ONCE = 2000;

export function TextLines({ text }: { text: string }) {
  const { t } = useTranslation();
  const [most, setMost] = useState(AT_ONCE);
  const lines = useMemo(() => text.replace(/\n$/, "").split("\n"), [text]);
  if (text === "") return <p className={styles.padded}>{t("computers.files.emptyFile")}</p>;
  const shownLines = lines.slice(0, most);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
    <section className={styles.lines} tabIndex={0} aria-label={t("computers.files.text")}>
      <pre className={styles.numbers} aria-hidden>
        {shownLines.map((_, at) => at + 1).join("\n")}
      </pre>
      <pre className={styles.text}>{shownLines.join("\n")}</pre>
      {most < lines.length && (
        <Button className={styles.more} size="small" onClick={() => setMost(most + 10 * AT_ONCE)}>
          {t("diff.more", { count: lines.length - most })}
        </Button>
      )}
    </section>
  );
}

export function Bytes({ head, size: all }: { head: Uint8Array; size: number }) {
  const { t } = useTranslation();
  return (
    <div className={styles.padded}>
      <p className={styles.soft}>{t("computers.files.binary", { size: size(all) })}</p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard. */}
      <pre className={styles.hex} tabIndex={0}>
        {hexLines(head).join("\n")}
      </pre>
    </div>
  );
}

function Sheet({ text, path }: { text: string; path: string }) {
  const { t } = useTranslation();
  const { rows, more } = useMemo(() => parseTable(text, dividerOf(text, ending(path))), [text, path]);
  const [head, ...body] = rows;
  if (!head) return <p className={styles.padded}>{t("computers.files.emptyFile")}</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
    <section className={styles.sheet} tabIndex={0} aria-label={t("computers.files.table")}>
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
      {more && <p className={styles.cut}>{t("computers.files.moreRows", { count: rows.length })}</p>}
    </section>
  );
}

/** An address of the browser's own for a content; it is given back when the content changes. */
function useSource(content: Blob | null): string | null {
  const [source, setSource] = useState<string | null>(null);
  useEffect(() => {
    if (!content) return;
    const made = URL.createObjectURL(content);
    setSource(made);
    return () => {
      URL.revokeObjectURL(made);
      setSource(null);
    };
  }, [content]);
  return source;
}

function Html({ text, name }: { text: string; name: string }) {
  const { t } = useTranslation();
  const content = useMemo(() => new Blob([fenced(text)], { type: "text/html;charset=utf-8" }), [text]);
  const source = useSource(content);
  return (
    <div className={styles.page}>
      <p className={styles.cut}>{t("computers.files.htmlNote")}</p>
      {source && <iframe sandbox="" src={source} title={shown(name)} referrerPolicy="no-referrer" />}
    </div>
  );
}

function Media({ box, entry, shape }: Omit<Props, "text">) {
  const { t } = useTranslation();
  const small = entry.size <= LARGEST;
  const query = useQuery({
    queryKey: ["computers", box.id, "file", entry.path, "media", entry.modifiedAt],
    queryFn: async ({ signal }) => (await blob(box.id, entry.path, signal)).slice(0, LARGEST, typeOf(entry.path)),
    enabled: small,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 10_000,
  });
  const source = useSource(query.data ?? null);
  const [broken, setBroken] = useState(false);
  if (!small || broken)
    return (
      <Empty title={broken ? t("computers.files.broken") : t("computers.files.tooLarge")}>
        {t("computers.files.downloadIt")}
      </Empty>
    );
  if (query.error) return <Failed error={query.error} retry={() => void query.refetch()} />;
  if (!source) return <Loading />;
  if (shape === "image" || shape === "svg")
    return (
      <div className={styles.picture}>
        <img src={source} alt={shown(entry.name)} onError={() => setBroken(true)} />
      </div>
    );
  if (shape === "pdf")
    return (
      <Empty
        title={t("computers.files.pdf")}
        action={
          <Button icon={ExternalLink} onClick={() => window.open(source, "_blank", "noopener")}>
            {t("computers.files.open")}
          </Button>
        }
      />
    );
  return (
    <div className={styles.picture}>
      {shape === "video" ? (
        // biome-ignore lint/a11y/useMediaCaption: what a box has recorded has none.
        <video src={source} controls onError={() => setBroken(true)} />
      ) : (
        // biome-ignore lint/a11y/useMediaCaption: what a box has recorded has none.
        <audio src={source} controls onError={() => setBroken(true)} />
      )}
    </div>
  );
}
