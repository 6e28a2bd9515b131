import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { NetworkPolicyFields } from "@/sandbox-panel/network/NetworkPolicyFields";
import { isNetworkError, networkErrorText } from "@/sandbox-panel/network/network-policy";
import { useServerFacts } from "@/shell/status/server-facts";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, Select, TextInput } from "@/ui/controls/forms";
import { showToast } from "@/ui/controls/toasts";
import { formatDuration } from "@/ui/format/formats";
import { ErrorState } from "@/ui/layout/query-states";
import { SANDBOXES_QUERY } from "./actions";
import { BuildImage } from "./BuildImage";
import {
  type CreateSandboxForm,
  createSandboxRequestBody,
  EMPTY_SANDBOX_FORM,
  invalidSandboxFields,
  SANDBOX_LIFETIMES,
} from "./create-form";
import styles from "./SandboxesPage.module.css";
import { useSnapshotNames } from "./useSnapshotNames";

/** Dialog that creates a sandbox. */
export function CreateSandbox({ snapshot, onClose }: { snapshot: string; onClose: () => void }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const [, navigate] = useLocation();
  const form = useId();
  const server = useServerFacts().data;
  const defaultLifetime = server?.defaultTimeout;
  const defaultLifetimeText =
    defaultLifetime !== undefined
      ? t(`sandboxes.lives.${defaultLifetime}`, { defaultValue: formatDuration(defaultLifetime) })
      : t("sandboxes.lives.never");
  const [values, setValues] = useState<CreateSandboxForm>({ ...EMPTY_SANDBOX_FORM, snapshot });
  const change = (name: Exclude<keyof CreateSandboxForm, "network">) => (value: string) =>
    setValues((before) => ({ ...before, [name]: value }));
  const kinds = useQuery({
    queryKey: [SANDBOXES_QUERY, "kinds"],
    queryFn: ({ signal }) => api.get<Schema<"KindListResponse">>("/v1/kinds", { signal }),
  });
  const images = useQuery({
    queryKey: [SANDBOXES_QUERY, "images"],
    queryFn: ({ signal }) => api.get<Schema<"ImageListResponse">>("/v1/images", { signal }),
  });
  const creation = useMutation({
    mutationFn: () => api.post<Schema<"SandboxResponse">>("/v1/sandboxes", createSandboxRequestBody(values)),
    onSuccess: (sandbox) => {
      showToast(t("sandboxes.create.done"), { tone: "good" });
      void queries.invalidateQueries({ queryKey: [SANDBOXES_QUERY] });
      navigate(`/sandboxes/${encodeURIComponent(sandbox.id)}`);
    },
  });
  const snapshots = useSnapshotNames(Boolean(values.snapshot));
  const invalid = invalidSandboxFields(values);
  const kind = kinds.data?.items.find((each) => each.name === values.kind);
  const missing = kind?.built === false && !values.image ? kind : null;
  const names = [...new Set((images.data?.items ?? []).filter((each) => each.current).map((each) => each.name))].sort();
  const networkError = isNetworkError(creation.error) ? networkErrorText(creation.error) : null;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (Object.keys(invalid).length === 0) creation.mutate();
  };
  return (
    <Dialog
      open
      onClose={onClose}
      title={t("sandboxes.new")}
      footer={
        <>
          <Button onClick={onClose}>{t("common.cancel")}</Button>
          <Button
            tone="accent"
            type="submit"
            form={form}
            busy={creation.isPending}
            disabled={Object.keys(invalid).length > 0 || missing !== null}
          >
            {t("sandboxes.create.go")}
          </Button>
        </>
      }
    >
      <form id={form} onSubmit={submit} className={styles.form}>
        {values.snapshot ? (
          <p>
            {t("sandboxes.create.fromSnapshot")} <bdi>{snapshots[values.snapshot] ?? values.snapshot}</bdi>
          </p>
        ) : (
          <>
            <Field label={t("sandboxes.kind")} hint={kind && t(`chat.kindAbout.${kind.name}`, kind.description)}>
              <Select
                value={values.kind}
                onChange={change("kind")}
                options={[
                  { value: "", label: t("sandboxes.create.noKind") },
                  ...(kinds.data?.items ?? []).map((each) => ({
                    value: each.name,
                    label: t(`chat.kindTitle.${each.title}`, each.title),
                  })),
                ]}
              />
            </Field>
            {missing && <BuildImage image={missing.image} recipe={missing.recipe} />}
            <Field label={t("sandboxes.image")}>
              <Select
                value={values.image}
                onChange={change("image")}
                options={[
                  {
                    value: "",
                    label: kind
                      ? t("sandboxes.create.imageOf", { image: kind.image })
                      : t("sandboxes.create.defaultOf", { value: server?.defaultImage ?? "…" }),
                  },
                  ...names.map((name) => ({ value: name, label: name })),
                ]}
              />
            </Field>
          </>
        )}
        <div className={styles.pair}>
          <Field label={t("sandboxes.create.cpu")} error={invalid.cpu && t("sandboxes.create.cpuWrong")}>
            <TextInput
              value={values.cpu}
              placeholder={String(kind?.limits.cpu ?? 2)}
              onChange={(event) => change("cpu")(event.target.value)}
            />
          </Field>
          <Field label={t("sandboxes.create.memory")} error={invalid.memory && t("sandboxes.create.memoryWrong")}>
            <TextInput
              value={values.memory}
              placeholder={kind?.limits.memory ? `${kind.limits.memory / 2 ** 30}Gi` : "2Gi"}
              onChange={(event) => change("memory")(event.target.value)}
            />
          </Field>
        </div>
        <Field label={t("sandboxes.create.life")}>
          <Select
            value={values.life}
            onChange={change("life")}
            options={SANDBOX_LIFETIMES.map((life) => ({
              value: life,
              label: life
                ? t(`sandboxes.lives.${life}`)
                : t("sandboxes.create.defaultOf", {
                    value: server ? defaultLifetimeText : "…",
                  }),
            }))}
          />
        </Field>
        <Field
          label={t("sandboxes.create.name")}
          hint={t("sandboxes.create.nameHint")}
          error={invalid.name && t("sandboxes.create.nameWrong")}
        >
          <TextInput value={values.name} onChange={(event) => change("name")(event.target.value)} />
        </Field>
        <NetworkPolicyFields
          draft={values.network}
          onChange={(network) => {
            creation.reset();
            setValues((before) => ({ ...before, network }));
          }}
          defaultPolicy={kind && !values.snapshot ? kind.network : null}
          error={networkError}
        />
        {creation.error && !networkError && <ErrorState error={creation.error} />}
      </form>
    </Dialog>
  );
}
