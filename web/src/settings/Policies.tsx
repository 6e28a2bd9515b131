import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useUrlQuery } from "@/shell/navigation/useUrlQuery";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Badge, type Tone } from "@/ui/controls/Badge";
import { Field, Select } from "@/ui/controls/forms";
import { QueryResult } from "@/ui/layout/query-states";
import { Table } from "@/ui/layout/Table";
import { type PolicyRule, ruleArguments, ruleTool } from "./policy-rules";
import styles from "./SettingsPage.module.css";

const TONES: Record<Schema<"PolicyAction">, Tone> = { allow: "good", ask: "warning", deny: "danger" };
const DEFAULTS: [string, Schema<"PolicyAction">][] = [
  ["look", "allow"],
  ["touch", "allow"],
  ["command", "ask"],
  ["write", "ask"],
  ["question", "ask"],
];
const EXAMPLE = `{
  "rules": [
    {"tool": "run_shell_command", "arguments": {"command": "rm *"}, "action": "deny"},
    {"tool": "run_shell_command", "arguments": {"command": "git *"}, "action": "allow"},
    {"tool": "write_file", "arguments": {"path": "/workspace/*"}, "action": "allow"}
  ],
  "allow_all": ["browser"]
}
`;

/** Default policy of agents, and the rules of a chat. */
export function PolicySettings() {
  const { t } = useTranslation();
  const { get, set } = useUrlQuery();
  const chosen = get("chat");
  const chats = useQuery({
    queryKey: ["settings", "chats"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SessionListResponse">>("/v1/sessions", { query: { pageSize: 100 }, signal }),
  });
  const action = (value: Schema<"PolicyAction">) => (
    <Badge tone={TONES[value]}>{t(`settings.policies.actions.${value}`)}</Badge>
  );
  return (
    <>
      <section className={styles.section} aria-labelledby="defaults">
        <h2 id="defaults">{t("settings.policies.defaults")}</h2>
        <p className={styles.soft}>{t("settings.policies.about")}</p>
        <Table
          label={t("settings.policies.defaults")}
          rows={DEFAULTS}
          keyOf={([callKind]) => callKind}
          columns={[
            {
              id: "what",
              label: t("settings.policies.what"),
              cell: ([callKind]) => t(`settings.policies.calls.${callKind}`),
            },
            { id: "action", label: t("settings.policies.then"), cell: ([, defaultAction]) => action(defaultAction) },
          ]}
        />
      </section>
      <section className={styles.section} aria-labelledby="chat">
        <h2 id="chat">{t("settings.policies.ofChat")}</h2>
        <QueryResult
          query={chats}
          rows={2}
          isEmpty={({ items }) => items.length === 0}
          empty={<p className={styles.soft}>{t("settings.policies.noChats")}</p>}
        >
          {({ items }) => {
            const chat = items.find((each) => each.id === chosen) ?? items[0];
            if (!chat) return null;
            return (
              <>
                <div className={styles.narrow}>
                  <Field label={t("settings.policies.chat")}>
                    <Select
                      value={chat.id}
                      onChange={(id) => set({ chat: id })}
                      options={items.map((each) => ({ value: each.id, label: each.title || each.id }))}
                    />
                  </Field>
                </div>
                {chat.policy.allow_all.length > 0 && (
                  <p>{t("settings.policies.allowAll", { kinds: chat.policy.allow_all.join(", ") })}</p>
                )}
                {chat.policy.rules.length === 0 ? (
                  <p className={styles.soft}>{t("settings.policies.noRules")}</p>
                ) : (
                  <Table<{ rule: PolicyRule; order: number }>
                    label={t("settings.policies.ofChat")}
                    rows={chat.policy.rules.map((rule, order) => ({ rule, order: order + 1 }))}
                    keyOf={({ order }) => String(order)}
                    columns={[
                      { id: "place", label: t("settings.policies.order"), numeric: true, cell: ({ order }) => order },
                      {
                        id: "tool",
                        label: t("settings.policies.tool"),
                        cell: ({ rule }) => <bdi>{ruleTool(rule) ?? t("settings.policies.anyTool")}</bdi>,
                      },
                      {
                        id: "arguments",
                        label: t("settings.policies.arguments"),
                        cell: ({ rule }) => <code>{ruleArguments(rule) ?? t("settings.policies.anyArguments")}</code>,
                      },
                      { id: "action", label: t("settings.policies.then"), cell: ({ rule }) => action(rule.action) },
                    ]}
                  />
                )}
                <p>
                  <Link href={`/chats/${encodeURIComponent(chat.id)}`}>{t("settings.policies.change")}</Link>
                </p>
              </>
            );
          }}
        </QueryResult>
      </section>
      <section className={styles.section} aria-labelledby="rules">
        <h2 id="rules">{t("settings.policies.rules")}</h2>
        <ol className={styles.rules}>
          <li>{t("settings.policies.first")}</li>
          <li>
            <TextWithCode text={t("settings.policies.patterns")} />
          </li>
          <li>{t("settings.policies.always")}</li>
          <li>{t("settings.policies.deny")}</li>
        </ol>
        <div className={styles.narrow}>
          <CodeBlock text={EXAMPLE} label={t("settings.policies.example")} fileName="policy.json" />
        </div>
      </section>
    </>
  );
}
