import { memo, type ReactNode } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { Code } from "./Code";
import styles from "./pieces.module.css";

/** What agents write is not trusted: no HTML, no scripts, and no picture is fetched from elsewhere. */
const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ),
  img: ({ src, alt }) =>
    typeof src === "string" && src.startsWith("/v1/") ? (
      <img src={src} alt={alt ?? ""} />
    ) : (
      <a href={String(src ?? "")} target="_blank" rel="noopener noreferrer nofollow">
        {alt || String(src ?? "")}
      </a>
    ),
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

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  return (
    <div className={styles.markdown}>
      <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS}>
        {text}
      </ReactMarkdown>
    </div>
  );
});
