import { useQuery } from "@tanstack/react-query";
import { Cable, MessageCircleQuestionMark } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { ConnectModel } from "@/shell/ConnectModel";
import { may, useMe } from "@/shell/me";
import { ProviderState } from "@/shell/ProviderState";
import { useServer } from "@/shell/server";
import { Badge } from "@/ui/Badge";
import { Button } from "@/ui/Button";
import { Empty, Loaded } from "@/ui/states";
import { Table } from "@/ui/Table";
import styles from "./Settings.module.css";
import { TryModel } from "./TryModel";

/** Which models there are, who answers for them, and how to add one. */
export function Models() {
  const { t } = useTranslation();
  const me = useMe().data;
  const [tried, setTried] = useState<string | null>(null);
  const query = useQuery({
    queryKey: ["settings", "llm"],
    queryFn: ({ signal }) => api.get<Schema<"ModelsSaid">>("/v1/llm", { signal }),
    refetchInterval: 10_000,
  });
  const demo = useServer().data?.models.demo;
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
          <Table<Schema<"ProviderSaid">>
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
                  <bdi>{provider.baseUrl ?? (hasAddress(provider.kind) ? t("settings.models.ownAddress") : "–")}</bdi>
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
        <Loaded
          query={query}
          isEmpty={({ models, patterns }) => models.length + patterns.length === 0}
          empty={
            <Empty icon={Cable} title={t("settings.models.none")}>
              {t("settings.models.noneAbout")}
            </Empty>
          }
        >
          {({ models }) => (
            <Table<Schema<"ModelSaid">>
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
                may(me, "keys:admin") && may(me, "llm:use")
                  ? (model) => (
                      <Button size="small" icon={MessageCircleQuestionMark} onClick={() => setTried(model.name)}>
                        {t("settings.models.try")}
                      </Button>
                    )
                  : undefined
              }
            />
          )}
        </Loaded>
        {query.data && query.data.patterns.length > 0 && (
          <p className={styles.soft}>
            {query.data.patterns.some((each) => each.name === "*")
              ? t("settings.models.anyName")
              : t("settings.models.patterns", { patterns: query.data.patterns.map((each) => each.name).join(", ") })}
          </p>
        )}
        {unlisted.map((provider) => (
          <p key={provider.name} className={styles.soft}>
            {t("settings.models.unlisted", { name: provider.name, problem: provider.listProblem })}
          </p>
        ))}
      </section>
      <section className={styles.section} aria-labelledby="connect">
        <h2 id="connect">{t("settings.models.add")}</h2>
        <div className={styles.narrow}>
          <ConnectModel />
        </div>
      </section>
      {tried !== null && <TryModel name={tried} onClose={() => setTried(null)} />}
    </>
  );
}

/** Scripts and recordings are files of the server's own. */
function hasAddress(kind: string): boolean {
  return kind !== "script" && kind !== "replay";
}
