import { useQuery } from "@tanstack/react-query";
import { Cable, MessageCircleQuestionMark } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { ConnectModel } from "@/shell/models/ConnectModel";
import { ProviderState } from "@/shell/models/ProviderState";
import { useServerFacts } from "@/shell/status/server-facts";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { translateServerText } from "@/ui/format/server-text";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { Table } from "@/ui/layout/Table";
import styles from "./SettingsPage.module.css";
import { TryModelDialog } from "./TryModelDialog";

/** Models and providers, and how to connect one. */
export function ModelSettings() {
  const { t } = useTranslation();
  const me = useCurrentUser().data;
  const [triedModel, setTriedModel] = useState<string | null>(null);
  const query = useQuery({
    queryKey: ["settings", "llm"],
    queryFn: ({ signal }) => api.get<Schema<"ModelsResponse">>("/v1/llm", { signal }),
    refetchInterval: 10_000,
  });
  const demo = useServerFacts().data?.models.demo;
  const kindOf = (name: string) => query.data?.providers.find((provider) => provider.name === name)?.kind;
  const unlisted = (query.data?.providers ?? []).filter(
    (provider) =>
      provider.listProblem &&
      !provider.keyRefusedAt &&
      query.data?.models.some((each) => each.provider === provider.name && each.wellKnown),
  );
  return (
    <>
      {query.data && query.data.providers.length > 0 && (
        <section className={styles.section} aria-labelledby="providers">
          <h2 id="providers">{t("settings.models.providers")}</h2>
          <Table<Schema<"ProviderResponse">>
            label={t("settings.models.providers")}
            rows={query.data.providers}
            keyOf={(provider) => provider.name}
            columns={[
              { id: "name", label: t("settings.models.provider"), cell: (provider) => <bdi>{provider.name}</bdi> },
              { id: "kind", label: t("settings.models.kind"), cell: (provider) => provider.kind },
              {
                id: "address",
                label: t("settings.models.address"),
                minor: true,
                cell: (provider) => (
                  <bdi>{provider.baseUrl ?? (hasBaseUrl(provider.kind) ? t("settings.models.ownAddress") : "–")}</bdi>
                ),
              },
              {
                id: "found",
                label: t("settings.models.found"),
                minor: true,
                cell: (provider) =>
                  provider.foundIn ? (
                    <code>{provider.foundIn}</code>
                  ) : demo && provider.name === "demo" ? (
                    t("settings.models.builtIn")
                  ) : (
                    "paddock.yaml"
                  ),
              },
              {
                id: "state",
                label: t("settings.models.state"),
                cell: (provider) => <ProviderState provider={provider} />,
              },
            ]}
          />
        </section>
      )}
      <section className={styles.section} aria-labelledby="models">
        <h2 id="models">{t("settings.models.title")}</h2>
        <QueryResult
          query={query}
          isEmpty={({ models, patterns }) => models.length + patterns.length === 0}
          empty={
            <EmptyState icon={Cable} title={t("settings.models.none")}>
              {t("settings.models.noneAbout")}
            </EmptyState>
          }
        >
          {({ models }) => (
            <Table<Schema<"ModelResponse">>
              label={t("settings.models.title")}
              rows={models}
              keyOf={(model) => model.name}
              columns={[
                {
                  id: "name",
                  label: t("settings.models.name"),
                  cell: (model) => (
                    <span className={styles.row}>
                      <bdi className={styles.mono}>{model.name}</bdi>
                      {model.name === query.data?.default && <Badge>{t("settings.models.default")}</Badge>}
                      {model.wellKnown && <Badge tone="warning">{t("settings.models.wellKnown")}</Badge>}
                      {kindOf(model.provider) === "script" && <Badge tone="info">{t("settings.models.script")}</Badge>}
                    </span>
                  ),
                },
                { id: "provider", label: t("settings.models.provider"), cell: (model) => <bdi>{model.provider}</bdi> },
                {
                  id: "model",
                  label: t("settings.models.asks"),
                  minor: true,
                  cell: (model) => <bdi>{model.model === model.name ? t("settings.models.same") : model.model}</bdi>,
                },
                {
                  id: "fallbacks",
                  label: t("settings.models.fallbacks"),
                  minor: true,
                  cell: (model) => model.fallbacks.join(", ") || "–",
                },
              ]}
              actions={
                hasScope(me, "keys:admin") && hasScope(me, "llm:use")
                  ? (model) => (
                      <Button size="small" icon={MessageCircleQuestionMark} onClick={() => setTriedModel(model.name)}>
                        {t("settings.models.try")}
                      </Button>
                    )
                  : undefined
              }
            />
          )}
        </QueryResult>
        {query.data && query.data.ignoredVariables.length > 0 && (
          <p className={styles.soft}>
            {t("settings.models.ignored", {
              variables: query.data.ignoredVariables.join(", "),
              count: query.data.ignoredVariables.length,
            })}
          </p>
        )}
        {query.data && query.data.patterns.length > 0 && (
          <p className={styles.soft}>
            {query.data.patterns.some((each) => each.name === "*")
              ? t("settings.models.anyName")
              : t("settings.models.patterns", { patterns: query.data.patterns.map((each) => each.name).join(", ") })}
          </p>
        )}
        {unlisted.map((provider) => (
          <p key={provider.name} className={styles.soft}>
            {t("settings.models.unlisted", {
              name: provider.name,
              problem: translateServerText(provider.listProblem ?? ""),
            })}
          </p>
        ))}
      </section>
      <section className={styles.section} aria-labelledby="connect">
        <h2 id="connect">{t("settings.models.add")}</h2>
        <div className={styles.narrow}>
          <ConnectModel />
        </div>
      </section>
      {triedModel !== null && <TryModelDialog name={triedModel} onClose={() => setTriedModel(null)} />}
    </>
  );
}

/** Scripts and recordings are local files of the server. */
function hasBaseUrl(kind: string): boolean {
  return kind !== "script" && kind !== "replay";
}
