import { ChevronRight, Wrench } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { Badge } from "@/ui/controls/Badge";
import { SearchBox } from "@/ui/controls/forms";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { type McpServer, type McpTool, useMcpTools } from "./api";
import styles from "./mcp.module.css";
import { refusalText } from "./server-messages";
import { TryTool } from "./TryTool";

const MAX_BEFORE_SEARCH = 8;

/** Tools of a server. Names, descriptions and schemas are the server's own and shown as plain text. */
export function ToolList({ server, sandbox }: { server: McpServer; sandbox: string }) {
  const { t } = useTranslation();
  const [search, setSearch] = useState("");
  const callable = server.usable || (server.kind === "local" && sandbox !== "");
  const query = useMcpTools(server.name, sandbox, callable);
  if (!callable)
    return (
      <EmptyState icon={Wrench} title={t("mcp.tool.unusable")}>
        {refusalText(server.reason ?? "", t)}
      </EmptyState>
    );
  return (
    <QueryResult query={query}>
      {(tools) => {
        if (tools.length === 0)
          return (
            <EmptyState icon={Wrench} title={t("mcp.tool.none")}>
              {server.held > 0 ? t("mcp.tool.noneHeld") : undefined}
            </EmptyState>
          );
        const typed = search.trim().toLowerCase();
        const rows = tools.filter((tool) => `${tool.name} ${tool.description}`.toLowerCase().includes(typed));
        return (
          <>
            {tools.length > MAX_BEFORE_SEARCH && (
              <SearchBox label={t("mcp.tool.search")} value={search} onChange={setSearch} />
            )}
            <ul className={styles.tools}>
              {rows.map((tool) => (
                <li key={tool.name}>
                  <ToolCard server={server} tool={tool} sandbox={sandbox} />
                </li>
              ))}
            </ul>
          </>
        );
      }}
    </QueryResult>
  );
}

const HINTS = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] as const;

function ToolCard({ server, tool, sandbox }: { server: McpServer; tool: McpTool; sandbox: string }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const hints = HINTS.filter((hint) => tool.annotations[hint] === true);
  return (
    <details className={styles.tool} open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <ChevronRight size={15} aria-hidden className={styles.arrow} />
        <code className={styles.toolName}>{tool.name}</code>
        {!open && <span className={styles.toolAbout}>{tool.description.split("\n", 1)[0] || tool.title}</span>}
      </summary>
      {open && (
        <div className={styles.toolBody}>
          {tool.title && tool.title !== tool.name && <p className={styles.strong}>{tool.title}</p>}
          {tool.description && <p className={styles.description}>{tool.description}</p>}
          {hints.length > 0 && (
            <p className={styles.row}>
              {hints.map((hint) => (
                <Badge key={hint} title={t("mcp.tool.hintAbout")}>
                  {t(`mcp.tool.hints.${hint}`)}
                </Badge>
              ))}
            </p>
          )}
          <TryTool server={server} tool={tool} sandbox={sandbox} />
          <details className={styles.schema}>
            <summary>{t("mcp.tool.schema")}</summary>
            <CodeBlock
              text={JSON.stringify(tool.inputSchema, null, 2)}
              label={t("mcp.tool.input")}
              fileName={`${tool.name}.json`}
              wrap
            />
            {tool.outputSchema !== undefined && (
              <CodeBlock
                text={JSON.stringify(tool.outputSchema, null, 2)}
                label={t("mcp.tool.output")}
                fileName={`${tool.name}.output.json`}
                wrap
              />
            )}
          </details>
        </div>
      )}
    </details>
  );
}
