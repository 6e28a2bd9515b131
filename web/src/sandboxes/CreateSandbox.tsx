import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Button } from "@/ui/Button";
import { Dialog } from "@/ui/Dialog";
import { Field, Select, TextInput } from "@/ui/forms";
import { Failed } from "@/ui/states";
import { toast } from "@/ui/toasts";
import { SANDBOXES } from "./actions";
import { BuildImage } from "./BuildImage";
import styles from "./Sandboxes.module.css";
import { useSnapshotNames } from "./useSnapshotNames";
import { BLANK, bodyOf, LIVES, mistakes, type Wish } from "./wish";

/** Asks what a new sandbox should be, and makes it. */
export function CreateSandbox({ snapshot, onClose }: { snapshot: string; onClose: () => void }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const [, navigate] = useLocation();
  const form = useId();
  const [wish, setWish] = useState<Wish>({ ...BLANK, snapshot });
  const change = (name: keyof Wish) => (value: string) => setWish((before) => ({ ...before, [name]: value }));
  const kinds = useQuery({
    queryKey: [SANDBOXES, "kinds"],
    queryFn: ({ signal }) => api.get<Schema<"KindList">>("/v1/kinds", { signal }),
  });
  const images = useQuery({
    queryKey: [SANDBOXES, "images"],
    queryFn: ({ signal }) => api.get<Schema<"ImageList">>("/v1/images", { signal }),
  });
  const made = useMutation({
    mutationFn: () => api.post<Schema<"SandboxSaid">>("/v1/sandboxes", bodyOf(wish)),
    onSuccess: (box) => {
      toast(t("sandboxes.create.done"), { tone: "good" });
      void queries.invalidateQueries({ queryKey: [SANDBOXES] });
      navigate(`/sandboxes/${encodeURIComponent(box.id)}`);
    },
  });
  const snapshots = useSnapshotNames(Boolean(wish.snapshot));
  const wrong = mistakes(wish);
  const kind = kinds.data?.items.find((each) => each.name === wish.kind);
  const missing = kind?.built === false && !wish.image ? kind : null;
  const names = [...new Set((images.data?.items ?? []).filter((each) => each.current).map((each) => each.name))].sort();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (Object.keys(wrong).length === 0) made.mutate();
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
            busy={made.isPending}
            disabled={Object.keys(wrong).length > 0 || missing !== null}
          >
            {t("sandboxes.create.go")}
          </Button>
        </>
      }
    >
      <form id={form} onSubmit={submit} className={styles.form}>
        {wish.snapshot ? (
          <p>
            {t("sandboxes.create.fromSnapshot")} <bdi>{snapshots[wish.snapshot] ?? wish.snapshot}</bdi>
          </p>
        ) : (
          <>
            <Field label={t("sandboxes.kind")} hint={kind && t(`chat.kindAbout.${kind.name}`, kind.description)}>
              <Select
                value={wish.kind}
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
                value={wish.image}
                onChange={change("image")}
                options={[
                  {
                    value: "",
                    label: kind
                      ? t("sandboxes.create.imageOf", { image: kind.image })
                      : t("sandboxes.create.imageDefault"),
                  },
                  ...names.map((name) => ({ value: name, label: name })),
                ]}
              />
            </Field>
          </>
        )}
        <div className={styles.pair}>
          <Field label={t("sandboxes.create.cpu")} error={wrong.cpu && t("sandboxes.create.cpuWrong")}>
            <TextInput
              value={wish.cpu}
              placeholder={String(kind?.limits.cpu ?? 2)}
              onChange={(event) => change("cpu")(event.target.value)}
            />
          </Field>
          <Field label={t("sandboxes.create.memory")} error={wrong.memory && t("sandboxes.create.memoryWrong")}>
            <TextInput
              value={wish.memory}
              placeholder={kind?.limits.memory ? `${kind.limits.memory / 2 ** 30}Gi` : "2Gi"}
              onChange={(event) => change("memory")(event.target.value)}
            />
          </Field>
        </div>
        <Field label={t("sandboxes.create.life")}>
          <Select
            value={wish.life}
            onChange={change("life")}
            options={LIVES.map((life) => ({ value: life, label: t(`sandboxes.lives.${life || "default"}`) }))}
          />
        </Field>
        <Field
          label={t("sandboxes.create.name")}
          hint={t("sandboxes.create.nameHint")}
          error={wrong.name && t("sandboxes.create.nameWrong")}
        >
          <TextInput value={wish.name} onChange={(event) => change("name")(event.target.value)} />
        </Field>
        {made.error && <Failed error={made.error} />}
      </form>
    </Dialog>
  );
}
