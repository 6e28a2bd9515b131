import { memo, type ReactNode } from "react";
import ReactMarkdown, { type Components, defaultUrlTransform } from "react-markdown";
import remarkGfm from "remark-gfm";
import { Code } from "./Code";
import { Picture } from "./Picture";
import styles from "./pieces.module.css";

/** Marks the address of a picture that `pictures` has given; nothing that is written in a text may begin like this. */
const OURS = "paddock:";

/** What agents write is not trusted: no HTML, no scripts, and no picture is fetched from elsewhere. */
const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ),
  img: ({ src, alt }) =>
    typeof src === "string" && src.startsWith(OURS) ? (
      <Picture path={src.slice(OURS.length)} alt={alt ?? ""} />
    ) : (
      <a href={String(src ?? "")} target="_blank" rel="noopener noreferrer nofollow">
        {alt || String(src ?? "")}
      </a>
    ),
  // The page has headings of its own, which these come below.
  h1: ({ children }) => <h3>{children}</h3>,
  h2: ({ children }) => <h4>{children}</h4>,
  h3: ({ children }) => <h5>{children}</h5>,
  h4: ({ children }) => <h6>{children}</h6>,
  pre: ({ children }) => <>{children}</>,
  code: ({ className, children }) => {
    const text = textOf(children);
    const language = /language-([\w+-]+)/.exec(className ?? "")?.[1];
    if (!language && !text.includes("\n")) return <code>{children}</code>;
    return <Code text={text.replace(/\n$/, "")} label={language} fileName={`snippet.${language ?? "txt"}`} />;
  },
};

function textOf(children: ReactNode): string {
  return Array.isArray(children) ? children.map(textOf).join("") : typeof children === "string" ? children : "";
}

const PLUGINS = [remarkGfm];

interface Props {
  text: string;
  /** Where on this server a picture is that the text names by a path of its own; null if nowhere. */
  pictures?: (source: string) => string | null;
}

export const Markdown = memo(function Markdown({ text, pictures }: Props) {
  const place = (url: string, key: string) => {
    const ours = key === "src" ? pictures?.(url) : null;
    return ours ? OURS + ours : defaultUrlTransform(url);
  };
  return (
    <div className={styles.markdown}>
      <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS} urlTransform={place}>
        {text}
      </ReactMarkdown>
    </div>
  );
});
