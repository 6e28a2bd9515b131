import { type ComponentType, memo, type ReactNode, useMemo } from "react";
import ReactMarkdown, { type Components, defaultUrlTransform } from "react-markdown";
import remarkGfm from "remark-gfm";
import styles from "../layout/layout.module.css";
import { CodeBlock } from "./CodeBlock";
import { ServerImage } from "./ServerImage";

/** Marks image addresses resolved by `pictures`; text cannot forge it. */
const RESOLVED_PREFIX = "paddock:";

/** Agent text is untrusted: no HTML, no scripts, and no images from other servers. */
const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ),
  img: ({ src, alt }) =>
    typeof src === "string" && src.startsWith(RESOLVED_PREFIX) ? (
      <ServerImage path={src.slice(RESOLVED_PREFIX.length)} alt={alt ?? ""} />
    ) : (
      <a href={String(src ?? "")} target="_blank" rel="noopener noreferrer nofollow">
        {alt || String(src ?? "")}
      </a>
    ),
  // Headings start below the headings of the page.
  h1: ({ children }) => <h3>{children}</h3>,
  h2: ({ children }) => <h4>{children}</h4>,
  h3: ({ children }) => <h5>{children}</h5>,
  h4: ({ children }) => <h6>{children}</h6>,
  pre: ({ children }) => <>{children}</>,
  code: ({ className, children }) => {
    const text = plainText(children);
    const language = /language-([\w+-]+)/.exec(className ?? "")?.[1];
    if (!language && !text.includes("\n")) return <code>{children}</code>;
    return <CodeBlock text={text.replace(/\n$/, "")} label={language} fileName={`snippet.${language ?? "txt"}`} />;
  },
};

function plainText(children: ReactNode): string {
  return Array.isArray(children) ? children.map(plainText).join("") : typeof children === "string" ? children : "";
}

const PLUGINS = [remarkGfm];

interface Props {
  text: string;
  /** Server path of an image that the text references; null if there is none. */
  pictures?: (source: string) => string | null;
  /** Renders inline code, such as file names. */
  code?: ComponentType<{ text: string }>;
  /** Renders images with a path as source. */
  image?: ComponentType<{ source: string; alt: string }>;
}

/** Absolute URL, not a path. */
const ABSOLUTE_URL = /^(?:[a-z][a-z0-9+.-]*:|\/\/|#)/i;

function markdownComponents(InlineCode: Props["code"], Image: Props["image"]): Components {
  if (!InlineCode && !Image) return COMPONENTS;
  const { code: Code, img: Img } = COMPONENTS as Record<"code" | "img", ComponentType<Record<string, unknown>>>;
  return {
    ...COMPONENTS,
    code: ({ node, ...props }) => {
      const text = plainText(props.children);
      const inline = !/language-/.test(props.className ?? "") && !text.includes("\n");
      return InlineCode && inline ? <InlineCode text={text} /> : <Code {...props} />;
    },
    img: ({ node, ...props }) => {
      const source = typeof props.src === "string" ? props.src : "";
      return Image && source && !ABSOLUTE_URL.test(source) ? (
        <Image source={source} alt={props.alt ?? ""} />
      ) : (
        <Img {...props} />
      );
    },
  };
}

export const Markdown = memo(function Markdown({ text, pictures, code, image }: Props) {
  const components = useMemo(() => markdownComponents(code, image), [code, image]);
  const resolveUrl = (url: string, key: string) => {
    const resolved = key === "src" ? pictures?.(url) : null;
    return resolved ? RESOLVED_PREFIX + resolved : defaultUrlTransform(url);
  };
  return (
    <div className={styles.markdown}>
      <ReactMarkdown remarkPlugins={PLUGINS} components={components} urlTransform={resolveUrl}>
        {text}
      </ReactMarkdown>
    </div>
  );
});
