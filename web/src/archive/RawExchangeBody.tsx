import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api, downloadFile } from "@/api/client";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { Button } from "@/ui/controls/Button";
import { showErrorToast } from "@/ui/controls/toasts";
import { formatBytes } from "@/ui/format/formats";
import { QueryResult } from "@/ui/layout/query-states";
import styles from "./archive.module.css";
import { prettyJson } from "./message-turns";

/** Characters rendered at first, and the limit above which the browser would become slow. */
const PREVIEW_CHARACTERS = 100_000;
const MAX_CHARACTERS = 5_000_000;

/** Raw bytes of a request or response. */
export function RawExchangeBody({ id, side }: { id: string; side: "request" | "response" }) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  const path = `/v1/exchanges/${encodeURIComponent(id)}`;
  const query = useQuery({
    queryKey: ["archive", "raw", id, side],
    queryFn: async ({ signal }) => prettyJson(await api.text(path, { query: { raw: side }, signal })),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 30_000,
  });
  const save = () => void downloadFile(path, `${id}.${side}.txt`, { raw: side }).catch(showErrorToast);
  return (
    <QueryResult query={query}>
      {(text) => {
        const shown = all ? text : text.slice(0, PREVIEW_CHARACTERS);
        const cut = shown.length < text.length;
        return (
          <div className={styles.raw}>
            {text ? (
              <CodeBlock text={shown} label={t(`archive.raw.${side}`)} fileName={`${id}.${side}.txt`} wrap={!all} />
            ) : (
              <p>{t("archive.raw.none")}</p>
            )}
            {cut && (
              <div className={styles.row}>
                <span className={styles.soft}>
                  {t("archive.raw.cut", { shown: formatBytes(PREVIEW_CHARACTERS), all: formatBytes(text.length) })}
                </span>
                {text.length <= MAX_CHARACTERS && (
                  <Button onClick={() => setAll(true)}>{t("archive.raw.showAll")}</Button>
                )}
                <Button onClick={save}>{t("common.download")}</Button>
              </div>
            )}
          </div>
        );
      }}
    </QueryResult>
  );
}
