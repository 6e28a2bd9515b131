import { type ComponentType, memo, type ReactNode, useMemo } from "react";
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
  /** For pieces of code in a line, such as names of files. */
  code?: ComponentType<{ text: string }>;
  /** For pictures whose source is a path. */
  image?: ComponentType<{ source: string; alt: string }>;
}

/** An address of a page, and not a path. */
const ADDRESS = /^(?:[a-z][a-z0-9+.-]*:|\/\/|#)/i;

function componentsWith(InlineCode: Props["code"], Image: Props["image"]): Components {
  if (!InlineCode && !Image) return COMPONENTS;
  const { code: Code, img: Img } = COMPONENTS as Record<"code" | "img", ComponentType<Record<string, unknown>>>;
  return {
    ...COMPONENTS,
    code: ({ node, ...props }) => {
      const text = textOf(props.children);
      const inline = !/language-/.test(props.className ?? "") && !text.includes("\n");
      return InlineCode && inline ? <InlineCode text={text} /> : <Code {...props} />;
    },
    img: ({ node, ...props }) => {
      const source = typeof props.src === "string" ? props.src : "";
      return Image && source && !ADDRESS.test(source) ? (
        <Image source={source} alt={props.alt ?? ""} />
      ) : (
        <Img {...props} />
      );
    },
  };
}

export const Markdown = memo(function Markdown({ text, pictures, code, image }: Props) {
  const components = useMemo(() => componentsWith(code, image), [code, image]);
  const place = (url: string, key: string) => {
    const ours = key === "src" ? pictures?.(url) : null;
    return ours ? OURS + ours : defaultUrlTransform(url);
  };
  return (
    <div className={styles.markdown}>
      <ReactMarkdown remarkPlugins={PLUGINS} components={components} urlTransform={place}>
        {text}
      </ReactMarkdown>
    </div>
  );
});
