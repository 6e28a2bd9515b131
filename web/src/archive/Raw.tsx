import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api, download } from "@/api/client";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Loaded } from "@/ui/states";
import { size } from "@/ui/Time";
import { toastError } from "@/ui/toasts";
import styles from "./archive.module.css";
import { pretty } from "./reading";

/** Letters that are drawn before more is asked for, and those beyond which a browser would not bear them. */
const SHOWN = 100_000;
const BEARABLE = 5_000_000;

/** The bytes of a request or an answer, as they came. */
export function Raw({ id, which }: { id: string; which: "request" | "response" }) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  const path = `/v1/exchanges/${encodeURIComponent(id)}`;
  const query = useQuery({
    queryKey: ["archive", "raw", id, which],
    queryFn: async ({ signal }) => pretty(await api.text(path, { query: { raw: which }, signal })),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 30_000,
  });
  const save = () => void download(path, `${id}.${which}.txt`, { raw: which }).catch(toastError);
  return (
    <Loaded query={query}>
      {(text) => {
        const shown = all ? text : text.slice(0, SHOWN);
        const cut = shown.length < text.length;
        return (
          <div className={styles.raw}>
            {text ? (
              <Code text={shown} label={t(`archive.raw.${which}`)} fileName={`${id}.${which}.txt`} wrap={!all} />
            ) : (
              <p>{t("archive.raw.none")}</p>
            )}
            {cut && (
              <div className={styles.row}>
                <span className={styles.soft}>
                  {t("archive.raw.cut", { shown: size(SHOWN), all: size(text.length) })}
                </span>
                {text.length <= BEARABLE && <Button onClick={() => setAll(true)}>{t("archive.raw.showAll")}</Button>}
                <Button onClick={save}>{t("common.download")}</Button>
              </div>
            )}
          </div>
        );
      }}
    </Loaded>
  );
}
