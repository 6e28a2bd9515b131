import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { api } from "@/api/client";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, Select, TextArea, TextInput } from "@/ui/controls/forms";
import { Switch } from "@/ui/controls/Switch";
import { ErrorState } from "@/ui/layout/query-states";
import { type McpServer, serverPath, useMcpServers } from "./api";
import styles from "./mcp.module.css";
import { NamedValueRows } from "./NamedValueRows";
import {
  declarationFromForm,
  EMPTY_SERVER_FORM,
  formFromDeclaration,
  isCompleteServerForm,
  looksLikeCredential,
  type ServerForm,
  type ServerFormField,
  serverFormProblems,
} from "./server-form";

const KINDS = ["remote", "internet", "local"] as const;
const TRANSPORTS = ["http", "sse", "grpc"] as const;

/** Adds or changes a server. */
export function ServerDialog({ server, onClose }: { server?: McpServer; onClose: () => void }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const [, navigate] = useLocation();
  const id = useId();
  const taken = useMcpServers().data?.items.map((each) => each.name) ?? [];
  const [before] = useState(() => server && formFromDeclaration(server.name, server.kind, server.declaration));
  const [form, setForm] = useState<ServerForm>(before ?? EMPTY_SERVER_FORM);
  const change = (changes: Partial<ServerForm>) => setForm((former) => ({ ...former, ...changes }));
  const problems = serverFormProblems(form, taken, before ?? null);
  const isValid = isCompleteServerForm(form) && Object.keys(problems).length === 0;
  const problemText = (field: ServerFormField) => {
    const problem = problems[field];
    return problem ? t(`mcp.problems.${problem}`) : null;
  };
  const saving = useMutation({
    mutationFn: () => {
      const body = declarationFromForm(form, server?.declaration);
      return server ? api.put<McpServer>(serverPath(server.name), body) : api.post<McpServer>("/v1/mcp/servers", body);
    },
    onSuccess: async (saved) => {
      await queries.invalidateQueries({ queryKey: ["mcp"] });
      onClose();
      if (!server) navigate(`/tools/${encodeURIComponent(saved.name)}`);
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isValid) saving.mutate();
  };
  const isLocal = form.kind === "local";
  const hasCredential = form.headers.some(looksLikeCredential);
  return (
    <Dialog
      open
      wide
      onClose={onClose}
      title={server ? t("mcp.server.editTitle", { name: server.name }) : t("mcp.server.add")}
      footer={
        <>
          <Button onClick={onClose}>{t("common.cancel")}</Button>
          <Button tone="accent" type="submit" form={id} busy={saving.isPending} disabled={!isValid}>
            {t(server ? "common.save" : "mcp.server.add")}
          </Button>
        </>
      }
    >
      <form id={id} className={styles.form} onSubmit={submit}>
        {!server && (
          <Field label={t("mcp.server.name")} hint={t("mcp.form.nameHint")} error={problemText("name")}>
            <TextInput
              value={form.name}
              maxLength={63}
              autoComplete="off"
              onChange={(event) => change({ name: event.target.value })}
            />
          </Field>
        )}
        <Field label={t("mcp.server.kind")} hint={t(`mcp.form.kinds.${form.kind}`)}>
          <Select
            value={form.kind}
            onChange={(kind) => change({ kind: kind as ServerForm["kind"] })}
            options={KINDS.map((kind) => ({ value: kind, label: t(`mcp.kinds.${kind}`) }))}
          />
        </Field>
        {isLocal ? (
          <>
            <Field label={t("mcp.form.command")} hint={t("mcp.form.commandHint")} error={problemText("command")}>
              <TextInput
                className={styles.mono}
                value={form.command}
                placeholder="python3 /workspace/server.py"
                spellCheck={false}
                onChange={(event) => change({ command: event.target.value })}
              />
            </Field>
            <NamedValueRows
              title={t("mcp.form.env")}
              addLabel={t("mcp.form.addVariable")}
              items={form.env}
              problem={problemText("env")}
              onChange={(env) => change({ env })}
            />
          </>
        ) : (
          <>
            <div className={styles.pair}>
              <Field label={t("mcp.form.url")} error={problemText("url")}>
                <TextInput
                  className={styles.mono}
                  value={form.url}
                  inputMode="url"
                  placeholder="https://tools.example.org/mcp"
                  spellCheck={false}
                  onChange={(event) => change({ url: event.target.value })}
                />
              </Field>
              <Field label={t("mcp.form.transport")}>
                <Select
                  value={form.transport}
                  onChange={(transport) => change({ transport: transport as ServerForm["transport"] })}
                  options={TRANSPORTS.map((each) => ({ value: each, label: t(`mcp.form.transports.${each}`) }))}
                />
              </Field>
            </div>
            <NamedValueRows
              title={t("mcp.form.headers")}
              addLabel={t("mcp.form.addHeader")}
              items={form.headers}
              problem={problemText("headers")}
              onChange={(headers) => change({ headers })}
            >
              <TextWithCode text={t(hasCredential ? "mcp.form.useSecret" : "mcp.form.headersHint")} />
            </NamedValueRows>
          </>
        )}
        <Field label={t("mcp.server.description")}>
          <TextInput
            value={form.description}
            maxLength={500}
            onChange={(event) => change({ description: event.target.value })}
          />
        </Field>
        <details className={styles.more} open={server !== undefined}>
          <summary>{t("mcp.form.more")}</summary>
          <div className={styles.form}>
            <div className={styles.pair}>
              <Field label={t("mcp.form.allow")} hint={t("mcp.form.patternsHint")}>
                <TextArea
                  rows={3}
                  className={styles.mono}
                  value={form.allow}
                  onChange={(event) => change({ allow: event.target.value })}
                />
              </Field>
              <Field label={t("mcp.form.deny")} hint={t("mcp.form.denyHint")}>
                <TextArea
                  rows={3}
                  className={styles.mono}
                  value={form.deny}
                  onChange={(event) => change({ deny: event.target.value })}
                />
              </Field>
            </div>
            <Field label={t("mcp.form.rename")} hint={t("mcp.form.renameHint")} error={problemText("rename")}>
              <TextArea
                rows={2}
                className={styles.mono}
                placeholder="web_search = search"
                value={form.rename}
                onChange={(event) => change({ rename: event.target.value })}
              />
            </Field>
            <div className={styles.pair}>
              <Field label={t("mcp.form.users")} hint={t("mcp.form.usersHint")}>
                <TextInput value={form.users} onChange={(event) => change({ users: event.target.value })} />
              </Field>
              <Field label={t("mcp.form.agents")} hint={t("mcp.form.agentsHint")}>
                <TextInput
                  value={form.agents}
                  placeholder="claude-code, langgraph"
                  onChange={(event) => change({ agents: event.target.value })}
                />
              </Field>
            </div>
            {!isLocal && form.transport !== "grpc" && (
              <Switch label={t("mcp.form.oauth")} checked={form.oauth} onChange={(oauth) => change({ oauth })} />
            )}
            <Switch
              label={t("mcp.form.holdChanges")}
              checked={form.holdChanges}
              onChange={(holdChanges) => change({ holdChanges })}
            />
          </div>
        </details>
        {saving.error && <ErrorState error={saving.error} />}
      </form>
    </Dialog>
  );
}
