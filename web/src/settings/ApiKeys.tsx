import { useQuery, useQueryClient } from "@tanstack/react-query";
import { KeyRound, Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { useUrlQuery } from "@/shell/navigation/useUrlQuery";
import { Badge } from "@/ui/controls/Badge";
import { Button, IconButton } from "@/ui/controls/Button";
import { Switch } from "@/ui/controls/Switch";
import { runWithUndo } from "@/ui/controls/toasts";
import { RelativeTime } from "@/ui/format/formats";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { Table } from "@/ui/layout/Table";
import { type ApiKey, apiKeyState, formatKeyBudget } from "./api-key-form";
import { NewKeyDialog } from "./NewKeyDialog";
import styles from "./SettingsPage.module.css";

const TONES = { works: "good", expired: "neutral", revoked: "neutral" } as const;

/** API keys: create, list and revoke. */
export function ApiKeySettings() {
  const { t, i18n } = useTranslation();
  const { get, set } = useUrlQuery();
  const queries = useQueryClient();
  const me = useCurrentUser().data;
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const all = get("all") === "1";
  const allowed = hasScope(me, "keys:admin");
  const query = useQuery({
    queryKey: ["settings", "keys"],
    queryFn: ({ signal }) => api.get<Schema<"KeyListResponse">>("/v1/keys", { signal }),
    enabled: allowed,
  });

  const revoke = (key: ApiKey) => {
    const show = () => setHidden((before) => new Set([...before].filter((id) => id !== key.id)));
    runWithUndo(
      t("settings.keys.revoked", { name: key.name }),
      t("common.undo"),
      async () => {
        await api.delete(`/v1/keys/${encodeURIComponent(key.id)}`);
        await queries.invalidateQueries({ queryKey: ["settings", "keys"] });
        show();
      },
      { hide: () => setHidden((before) => new Set([...before, key.id])), show },
    );
  };

  if (!allowed)
    return (
      <EmptyState icon={KeyRound} title={t("settings.keys.notAllowed")}>
        {t("settings.keys.notAllowedAbout")}
      </EmptyState>
    );
  return (
    <section className={styles.section} aria-labelledby="keys">
      <div className={styles.head}>
        <h2 id="keys">{t("settings.keys.title")}</h2>
        <div className={styles.row}>
          <Switch label={t("settings.keys.all")} checked={all} onChange={(on) => set({ all: on ? "1" : "" })} />
          <Button tone="accent" icon={Plus} onClick={() => set({ new: "1" })}>
            {t("settings.keys.new")}
          </Button>
        </div>
      </div>
      <p className={styles.soft}>{t("settings.keys.about")}</p>
      <QueryResult query={query}>
        {({ items }) => {
          const now = new Date();
          const rows = items.filter((key) => !hidden.has(key.id) && (all || apiKeyState(key, now) === "works"));
          if (rows.length === 0)
            return (
              <EmptyState icon={KeyRound} title={t("settings.keys.none")}>
                {t("settings.keys.noneAbout")}
              </EmptyState>
            );
          return (
            <Table<ApiKey>
              label={t("settings.keys.title")}
              rows={rows}
              keyOf={(key) => key.id}
              columns={[
                {
                  id: "name",
                  label: t("settings.keys.name"),
                  cell: (key) => (
                    <span className={styles.row}>
                      <bdi>{key.name}</bdi>
                      {key.id === me?.keyId && <Badge tone="info">{t("settings.keys.yours")}</Badge>}
                    </span>
                  ),
                },
                ...(items.some((key) => key.tenant !== me?.tenant)
                  ? [{ id: "tenant", label: t("settings.keys.tenant"), minor: true, cell: (key: ApiKey) => key.tenant }]
                  : []),
                {
                  id: "state",
                  label: t("settings.keys.state"),
                  cell: (key) => (
                    <Badge tone={TONES[apiKeyState(key, now)]}>
                      {t(`settings.keys.states.${apiKeyState(key, now)}`)}
                    </Badge>
                  ),
                },
                {
                  id: "prefix",
                  label: t("settings.keys.prefix"),
                  minor: true,
                  cell: (key) => <code>{key.prefix}…</code>,
                },
                {
                  id: "scopes",
                  label: t("settings.keys.scopes"),
                  minor: true,
                  cell: (key) => (
                    <span className={styles.tags}>
                      {key.scopes.map((scope) => (
                        <Badge key={scope}>{scope}</Badge>
                      ))}
                    </span>
                  ),
                },
                {
                  id: "budget",
                  label: t("settings.keys.budget"),
                  minor: true,
                  cell: (key) => formatKeyBudget(key, i18n.language, t) ?? "–",
                },
                {
                  id: "used",
                  label: t("settings.keys.used"),
                  minor: true,
                  cell: (key) => (key.lastUsedAt ? <RelativeTime at={key.lastUsedAt} /> : t("settings.keys.unused")),
                },
                {
                  id: "expires",
                  label: t("settings.keys.expires"),
                  cell: (key) => (key.expiresAt ? <RelativeTime at={key.expiresAt} /> : t("settings.keys.never")),
                },
              ]}
              actions={(key) =>
                apiKeyState(key, now) === "works" && (
                  <IconButton
                    size="small"
                    icon={Trash2}
                    label={t(key.id === me?.keyId ? "settings.keys.own" : "settings.keys.revoke", { name: key.name })}
                    disabled={key.id === me?.keyId}
                    onClick={() => revoke(key)}
                  />
                )
              }
            />
          );
        }}
      </QueryResult>
      {get("new") && <NewKeyDialog onClose={() => set({ new: "" })} />}
    </section>
  );
}
