import { useTranslation } from "react-i18next";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { isRecord } from "./api";
import styles from "./mcp.module.css";
import { resultParts } from "./result-parts";

/** Result of a tool: text, images and the rest as JSON. Nothing of it is interpreted or loaded from elsewhere. */
export function ToolResult({ result }: { result: Record<string, unknown> }) {
  const { t } = useTranslation();
  const parts = resultParts(result);
  return (
    <>
      {parts.map((part, index) => {
        if (part.type === "image")
          return <img key={index} src={part.source} alt={t("mcp.result.image")} className={styles.image} />;
        if (part.type === "audio")
          // biome-ignore lint/a11y/useMediaCaption: the server sends no captions.
          return <audio key={index} controls src={part.source} aria-label={t("mcp.result.audio")} />;
        return (
          <CodeBlock
            key={index}
            text={part.text}
            label={part.type === "json" ? t("mcp.result.other") : (part.label ?? t("mcp.result.text"))}
            fileName={part.type === "json" ? "result.json" : "result.txt"}
            wrap
            fold
          />
        );
      })}
      {isRecord(result.structuredContent) && (
        <CodeBlock
          text={JSON.stringify(result.structuredContent, null, 2)}
          label={t("mcp.result.structured")}
          fileName="result.json"
          wrap
          fold
        />
      )}
      {parts.length === 0 && !isRecord(result.structuredContent) && (
        <p className={styles.soft}>{t("mcp.result.empty")}</p>
      )}
    </>
  );
}
