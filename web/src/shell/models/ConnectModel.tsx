import { useState } from "react";
import { Trans, useTranslation } from "react-i18next";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { Field, Select } from "@/ui/controls/forms";
import { PROVIDER_SAMPLES, providerCommand } from "./provider-samples";

/** Steps to connect a model, with text to copy. */
export function ConnectModel() {
  const { t } = useTranslation();
  const [id, setId] = useState("anthropic");
  const sample = PROVIDER_SAMPLES.find((each) => each.id === id) ?? PROVIDER_SAMPLES[0];
  if (!sample) return null;
  const command = providerCommand(sample);
  return (
    <>
      <Field label={t("shell.connect.provider")}>
        <Select
          value={sample.id}
          onChange={setId}
          options={PROVIDER_SAMPLES.map(({ id: value, label }) => ({ value, label }))}
        />
      </Field>
      {command && (
        <>
          <CodeBlock text={command} />
          <p>{t("shell.connect.byKey")}</p>
          <h3>{t("shell.connect.more")}</h3>
        </>
      )}
      <CodeBlock text={sample.lines} label="paddock.yaml" fileName="paddock.yaml" />
      <p>
        <Trans
          i18nKey={command ? "shell.connect.moreAbout" : "shell.connect.about"}
          values={{ variable: sample.variable.split(":")[0] }}
          components={{ c: <code /> }}
        />
      </p>
    </>
  );
}
