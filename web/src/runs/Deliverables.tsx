import { Archive, FileX2, Package } from "lucide-react";
import { useCallback, useState } from "react";
import { useTranslation } from "react-i18next";
import { downloadFile, fetchRaw } from "@/api/client";
import { ContentPreview } from "@/ui/content/ContentPreview";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { showErrorToast } from "@/ui/controls/toasts";
import { formatBytes } from "@/ui/format/formats";
import { translateServerText } from "@/ui/format/server-text";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { EmptyState } from "@/ui/layout/query-states";
import { deliverablePath, isRunOver, type RunDetail } from "./api";
import styles from "./run.module.css";
import { resolveSiblingPath, workspaceRelativePath } from "./run-metrics";

/** Output files of a run, to view and download, and the missing ones. */
export function Deliverables({ run }: { run: RunDetail }) {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const [busy, setBusy] = useState(false);
  const items = run.result?.deliverables ?? [];
  const missing = run.result?.missing ?? [];
  const chosen = items.find((each) => each.path === search.get("path")) ?? items[0];
  const path = chosen?.path ?? "";
  const load = useCallback(
    async (maxBytes: number, signal: AbortSignal) => {
      const headers = { Range: `bytes=0-${maxBytes - 1}` };
      return (await fetchRaw("GET", deliverablePath(run.id, path), { headers, signal })).blob();
    },
    [run.id, path],
  );
  const paths = items.map((each) => each.path).join("\n");
  const pictures = useCallback(
    (source: string) => {
      const found = resolveSiblingPath(path, source);
      return found !== null && paths.split("\n").includes(found) ? deliverablePath(run.id, found) : null;
    },
    [run.id, path, paths],
  );
  const save = (each: string) => void downloadFile(deliverablePath(run.id, each), fileName(each)).catch(showErrorToast);
  const saveAll = async () => {
    setBusy(true);
    await downloadFile(`/v1/runs/${run.id}/archive`, `${run.id}.zip`, { format: "zip" }).catch(showErrorToast);
    setBusy(false);
  };
  if (!isRunOver(run.state))
    return (
      <EmptyState icon={Package} title={t("runs.notDelivered")}>
        {t("runs.notDeliveredHint")}
      </EmptyState>
    );
  return (
    <div className={styles.deliverables}>
      <div className={styles.fileColumn}>
        <ul className={styles.files}>
          {items.map((each) => (
            <li key={each.path}>
              <button
                type="button"
                aria-current={each.path === path ? "true" : undefined}
                onClick={() =>
                  setSearch(
                    (params) => {
                      params.set("path", each.path);
                      return params;
                    },
                    { replace: true },
                  )
                }
              >
                <span className={styles.path}>{each.path}</span>
                <span className={styles.soft}>{formatBytes(each.size)}</span>
              </button>
              {each.note && <p className={styles.odd}>{translateServerText(each.note)}</p>}
            </li>
          ))}
          {missing.map((each) => (
            <li key={each.path} className={styles.missing}>
              <FileX2 size={15} aria-hidden />
              <div>
                <span className={styles.path}>{workspaceRelativePath(each.path)}</span>{" "}
                <Badge tone={each.required ? "danger" : "neutral"}>
                  {each.required ? t("runs.missing") : t("runs.missingOptional")}
                </Badge>
                <p className={styles.soft}>{translateServerText(each.reason)}</p>
              </div>
            </li>
          ))}
        </ul>
        <Button icon={Archive} size="small" busy={busy} onClick={() => void saveAll()}>
          {t("runs.downloadAll")}
        </Button>
      </div>
      {chosen ? (
        <div className={styles.previewFrame}>
          <ContentPreview
            key={path}
            name={path}
            size={chosen.size}
            load={load}
            pictures={pictures}
            onDownload={() => save(path)}
          />
        </div>
      ) : (
        <EmptyState icon={Package} title={t("runs.nothingDelivered")}>
          <TextWithCode text={missing.length > 0 ? t("runs.missingHint") : t("runs.nothingAsked")} />
        </EmptyState>
      )}
    </div>
  );
}

function fileName(path: string): string {
  return path.split("/").pop() || path;
}
