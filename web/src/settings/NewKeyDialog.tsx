import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, Select, TextInput } from "@/ui/controls/forms";
import { ErrorState } from "@/ui/layout/query-states";
import {
  API_KEY_SCOPES,
  type ApiKeyForm,
  type ApiKeyScope,
  createKeyRequestBody,
  EMPTY_KEY_FORM,
  isPositiveNumber,
  isTenantName,
  lacksModelScope,
} from "./api-key-form";
import styles from "./SettingsPage.module.css";

const LIFETIMES = ["1", "7", "30", "90", "365", ""];

/** Form for a new key; creates the key and shows its secret once. */
export function NewKeyDialog({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const me = useCurrentUser().data;
  const form = useId();
  const [values, setValues] = useState<ApiKeyForm>(EMPTY_KEY_FORM);
  const change = (changes: Partial<ApiKeyForm>) => setValues((before) => ({ ...before, ...changes }));
  const creation = useMutation({
    mutationFn: () => api.post<Schema<"CreateKeyResponse">>("/v1/keys", createKeyRequestBody(values, new Date())),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["settings", "keys"] }),
  });
  const tenant = values.tenant.trim();
  const isValid =
    values.name.trim() &&
    values.scopes.size > 0 &&
    isTenantName(values.tenant) &&
    !lacksModelScope(values) &&
    isPositiveNumber(values.requests, true) &&
    isPositiveNumber(values.tokens, true) &&
    isPositiveNumber(values.cost, false);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isValid) creation.mutate();
  };

  if (creation.data)
    return (
      <Dialog
        open
        onClose={onClose}
        title={t("settings.keys.made")}
        footer={
          <Button tone="accent" onClick={onClose}>
            {t("settings.keys.kept")}
          </Button>
        }
      >
        <p>{t("settings.keys.once")}</p>
        <CodeBlock text={creation.data.secret} label={creation.data.name} fileName={`${creation.data.name}.key`} wrap />
      </Dialog>
    );
  return (
    <Dialog
      open
      onClose={onClose}
      title={t("settings.keys.new")}
      footer={
        <>
          <Button onClick={onClose}>{t("common.cancel")}</Button>
          <Button tone="accent" type="submit" form={form} busy={creation.isPending} disabled={!isValid}>
            {t("settings.keys.make")}
          </Button>
        </>
      }
    >
      <form id={form} className={styles.form} onSubmit={submit}>
        <Field label={t("settings.keys.name")} hint={t("settings.keys.nameHint")}>
          <TextInput
            value={values.name}
            maxLength={100}
            required
            onChange={(event) => change({ name: event.target.value })}
          />
        </Field>
        {hasScope(me, "admin") && (
          <Field
            label={t("settings.keys.tenant")}
            hint={t("settings.keys.tenantHint")}
            error={isTenantName(values.tenant) ? null : t("settings.keys.tenantWrong")}
          >
            <TextInput
              value={values.tenant}
              maxLength={63}
              placeholder={me?.tenant}
              onChange={(event) => change({ tenant: event.target.value })}
            />
          </Field>
        )}
        <fieldset className={styles.scopes}>
          <legend>{t("settings.keys.scopes")}</legend>
          {API_KEY_SCOPES.filter((scope) => hasScope(me, scope)).map((scope) => (
            <label key={scope}>
              <input
                type="checkbox"
                checked={values.scopes.has(scope)}
                onChange={(event) => change({ scopes: toggleScope(values.scopes, scope, event.target.checked) })}
              />
              <span>
                <code>{scope}</code>
                <span>{t(`settings.scopes.${scope.replace(":", "_")}`)}</span>
              </span>
            </label>
          ))}
        </fieldset>
        <p className={styles.sees}>
          {values.scopes.has("admin") || values.scopes.has("tenant:all")
            ? t("settings.keys.seesAll")
            : tenant && tenant !== me?.tenant
              ? t("settings.keys.seesOther", { tenant })
              : t("settings.keys.seesOwn")}
        </p>
        <Field label={t("settings.keys.life")}>
          <Select
            value={values.days}
            onChange={(days) => change({ days })}
            options={LIFETIMES.map((days) => ({
              value: days,
              label: days ? t("settings.keys.days", { count: Number(days) }) : t("settings.keys.forever"),
            }))}
          />
        </Field>
        <Field
          label={t("settings.keys.models")}
          hint={t("settings.keys.modelsHint")}
          error={lacksModelScope(values) ? t("settings.keys.needsModels") : null}
        >
          <TextInput
            value={values.models}
            placeholder="claude-*, gpt-5"
            onChange={(event) => change({ models: event.target.value })}
          />
        </Field>
        <div className={styles.pair}>
          {(["requests", "tokens", "cost"] as const).map((limit) => (
            <Field
              key={limit}
              label={t(`settings.keys.budgets.${limit}`)}
              error={isPositiveNumber(values[limit], limit !== "cost") ? null : t("settings.keys.number")}
            >
              <TextInput
                inputMode="decimal"
                value={values[limit]}
                onChange={(event) => change({ [limit]: event.target.value })}
              />
            </Field>
          ))}
        </div>
        {creation.error && <ErrorState error={creation.error} />}
      </form>
    </Dialog>
  );
}

function toggleScope(scopes: ReadonlySet<ApiKeyScope>, scope: ApiKeyScope, on: boolean): ReadonlySet<ApiKeyScope> {
  const next = new Set(scopes);
  if (on) next.add(scope);
  else next.delete(scope);
  return next;
}
