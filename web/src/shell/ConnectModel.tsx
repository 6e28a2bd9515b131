import { useState } from "react";
import { Trans, useTranslation } from "react-i18next";
import { Code } from "@/ui/Code";
import { Field, Select } from "@/ui/forms";
import { SAMPLES } from "./providers";

/** How a model is connected: what to write where, to be copied. */
export function ConnectModel() {
  const { t } = useTranslation();
  const [id, setId] = useState("anthropic");
  const sample = SAMPLES.find((each) => each.id === id) ?? SAMPLES[0];
  if (!sample) return null;
  return (
    <>
      <Field label={t("shell.connect.provider")}>
        <Select
          value={sample.id}
          onChange={setId}
          options={SAMPLES.map(({ id: value, label }) => ({ value, label }))}
        />
      </Field>
      <Code text={sample.lines} label="paddock.yaml" fileName="paddock.yaml" />
      <p>
        <Trans
          i18nKey="shell.connect.about"
          values={{ variable: sample.variable.split(":")[0] }}
          components={{ c: <code /> }}
        />
      </p>
    </>
  );
}
