import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { may, useMe } from "@/shell/me";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Dialog } from "@/ui/Dialog";
import { Field, Select, TextInput } from "@/ui/forms";
import { Failed } from "@/ui/states";
import { BLANK, bodyOf, isAmount, needsModels, SCOPES, type Scope, type Wish } from "./key";
import styles from "./Settings.module.css";

const LIVES = ["1", "7", "30", "90", "365", ""];

/** Asks what a new key may do, makes it, and shows its secret once. */
export function NewKey({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const me = useMe().data;
  const form = useId();
  const [wish, setWish] = useState<Wish>(BLANK);
  const change = (changes: Partial<Wish>) => setWish((before) => ({ ...before, ...changes }));
  const made = useMutation({
    mutationFn: () => api.post<Schema<"NewKey">>("/v1/keys", bodyOf(wish, new Date())),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["settings", "keys"] }),
  });
  const right =
    wish.name.trim() &&
    wish.scopes.size > 0 &&
    !needsModels(wish) &&
    isAmount(wish.requests, true) &&
    isAmount(wish.tokens, true) &&
    isAmount(wish.cost, false);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (right) made.mutate();
  };

  if (made.data)
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
        <Code text={made.data.secret} label={made.data.name} fileName={`${made.data.name}.key`} wrap />
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
          <Button tone="accent" type="submit" form={form} busy={made.isPending} disabled={!right}>
            {t("settings.keys.make")}
          </Button>
        </>
      }
    >
      <form id={form} className={styles.form} onSubmit={submit}>
        <Field label={t("settings.keys.name")} hint={t("settings.keys.nameHint")}>
          <TextInput
            value={wish.name}
            maxLength={100}
            required
            onChange={(event) => change({ name: event.target.value })}
          />
        </Field>
        <fieldset className={styles.scopes}>
          <legend>{t("settings.keys.scopes")}</legend>
          {SCOPES.filter((scope) => may(me, scope)).map((scope) => (
            <label key={scope}>
              <input
                type="checkbox"
                checked={wish.scopes.has(scope)}
                onChange={(event) => change({ scopes: toggled(wish.scopes, scope, event.target.checked) })}
              />
              <span>
                <code>{scope}</code>
                <span>{t(`settings.scopes.${scope.replace(":", "_")}`)}</span>
              </span>
            </label>
          ))}
        </fieldset>
        <p className={styles.sees}>
          {t(`settings.keys.${wish.scopes.has("admin") || wish.scopes.has("tenant:all") ? "seesAll" : "seesOwn"}`)}
        </p>
        <Field label={t("settings.keys.life")}>
          <Select
            value={wish.days}
            onChange={(days) => change({ days })}
            options={LIVES.map((days) => ({
              value: days,
              label: days ? t("settings.keys.days", { count: Number(days) }) : t("settings.keys.forever"),
            }))}
          />
        </Field>
        <Field
          label={t("settings.keys.models")}
          hint={t("settings.keys.modelsHint")}
          error={needsModels(wish) ? t("settings.keys.needsModels") : null}
        >
          <TextInput
            value={wish.models}
            placeholder="claude-*, gpt-5"
            onChange={(event) => change({ models: event.target.value })}
          />
        </Field>
        <div className={styles.pair}>
          {(["requests", "tokens", "cost"] as const).map((what) => (
            <Field
              key={what}
              label={t(`settings.keys.budgets.${what}`)}
              error={isAmount(wish[what], what !== "cost") ? null : t("settings.keys.number")}
            >
              <TextInput
                inputMode="decimal"
                value={wish[what]}
                onChange={(event) => change({ [what]: event.target.value })}
              />
            </Field>
          ))}
        </div>
        {made.error && <Failed error={made.error} />}
      </form>
    </Dialog>
  );
}

function toggled(scopes: ReadonlySet<Scope>, scope: Scope, on: boolean): ReadonlySet<Scope> {
  const next = new Set(scopes);
  if (on) next.add(scope);
  else next.delete(scope);
  return next;
}
