import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, TextArea, TextInput } from "@/ui/controls/forms";
import { ErrorState, QueryResult } from "@/ui/layout/query-states";
import { isRecord, type McpSet, useMcpServers } from "./api";
import styles from "./mcp.module.css";
import { SERVER_NAME, splitLines } from "./server-form";

type Rules = Record<string, unknown>;

/** Adds or changes a set: servers, and which of their tools it has. */
export function SetDialog({ set, onClose }: { set?: McpSet; onClose: () => void }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const form = useId();
  const servers = useMcpServers();
  const before = set?.declaration ?? {};
  const [name, setName] = useState(set?.name ?? "");
  const [description, setDescription] = useState(set?.description ?? "");
  const [chosen, setChosen] = useState<Record<string, Rules>>(() =>
    isRecord(before.servers)
      ? Object.fromEntries(Object.entries(before.servers).map(([key, rules]) => [key, isRecord(rules) ? rules : {}]))
      : {},
  );
  const saving = useMutation({
    mutationFn: () => {
      const body = { ...before, name, description: description.trim() || undefined, servers: chosen };
      return set
        ? api.put<McpSet>(`/v1/mcp/sets/${encodeURIComponent(set.name)}`, body)
        : api.post<McpSet>("/v1/mcp/sets", body);
    },
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["mcp", "sets"] });
      onClose();
    },
  });
  const isValid = SERVER_NAME.test(name) && Object.keys(chosen).length > 0;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isValid) saving.mutate();
  };
  const toggle = (server: string, on: boolean) =>
    setChosen((former) => {
      const { [server]: _, ...others } = former;
      return on ? { ...former, [server]: {} } : others;
    });
  return (
    <Dialog
      open
      onClose={onClose}
      title={set ? t("mcp.sets.edit", { name: set.name }) : t("mcp.sets.add")}
      footer={
        <>
          <Button onClick={onClose}>{t("common.cancel")}</Button>
          <Button tone="accent" type="submit" form={form} busy={saving.isPending} disabled={!isValid}>
            {t(set ? "common.save" : "mcp.sets.add")}
          </Button>
        </>
      }
    >
      <form id={form} className={styles.form} onSubmit={submit}>
        {!set && (
          <Field
            label={t("mcp.server.name")}
            error={name && !SERVER_NAME.test(name) ? t("mcp.problems.name") : null}
            hint={t("mcp.sets.nameHint")}
          >
            <TextInput value={name} maxLength={63} onChange={(event) => setName(event.target.value)} />
          </Field>
        )}
        <Field label={t("mcp.server.description")}>
          <TextInput value={description} maxLength={500} onChange={(event) => setDescription(event.target.value)} />
        </Field>
        <fieldset className={styles.group}>
          <legend>{t("mcp.sets.servers")}</legend>
          <QueryResult query={servers} rows={2}>
            {({ items }) =>
              items.map((server) => (
                <div key={server.name} className={styles.stackTight}>
                  <label className={styles.row}>
                    <input
                      type="checkbox"
                      checked={server.name in chosen}
                      onChange={(event) => toggle(server.name, event.target.checked)}
                    />
                    {server.name}
                  </label>
                  {server.name in chosen && (
                    <Field label={t("mcp.sets.allow", { name: server.name })} hint={t("mcp.form.patternsHint")}>
                      <TextArea
                        rows={2}
                        className={styles.mono}
                        defaultValue={textOfPatterns(chosen[server.name]?.allow)}
                        onChange={(event) => {
                          const allow = splitLines(event.target.value);
                          setChosen((former) => ({ ...former, [server.name]: { ...former[server.name], allow } }));
                        }}
                      />
                    </Field>
                  )}
                </div>
              ))
            }
          </QueryResult>
        </fieldset>
        {saving.error && <ErrorState error={saving.error} />}
      </form>
    </Dialog>
  );
}

const textOfPatterns = (patterns: unknown) => (Array.isArray(patterns) ? patterns.join("\n") : "");
