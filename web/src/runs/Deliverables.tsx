import { Archive, FileX2, Package } from "lucide-react";
import { useCallback, useState } from "react";
import { useTranslation } from "react-i18next";
import { download, fetchRaw } from "@/api/client";
import { Badge } from "@/ui/Badge";
import { Button } from "@/ui/Button";
import { Coded } from "@/ui/Coded";
import { Preview } from "@/ui/Preview";
import { useSearchParams } from "@/ui/search";
import { Empty } from "@/ui/states";
import { size } from "@/ui/Time";
import { toastError } from "@/ui/toasts";
import { deliverable, isOver, type WholeRun } from "./asking";
import { besideOf, shortPath } from "./figures";
import styles from "./run.module.css";

/** What a run has brought back, each to be looked at and saved, and what is missing. */
export function Deliverables({ run }: { run: WholeRun }) {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const [busy, setBusy] = useState(false);
  const items = run.result?.deliverables ?? [];
  const missing = run.result?.missing ?? [];
  const chosen = items.find((each) => each.path === search.get("path")) ?? items[0];
  const path = chosen?.path ?? "";
  const load = useCallback(
    async (most: number, signal: AbortSignal) => {
      const headers = { Range: `bytes=0-${most - 1}` };
      return (await fetchRaw("GET", deliverable(run.id, path), { headers, signal })).blob();
    },
    [run.id, path],
  );
  const paths = items.map((each) => each.path).join("\n");
  const pictures = useCallback(
    (source: string) => {
      const found = besideOf(path, source);
      return found !== null && paths.split("\n").includes(found) ? deliverable(run.id, found) : null;
    },
    [run.id, path, paths],
  );
  const save = (each: string) => void download(deliverable(run.id, each), nameOf(each)).catch(toastError);
  const saveAll = async () => {
    setBusy(true);
    await download(`/v1/runs/${run.id}/archive`, `${run.id}.zip`, { format: "zip" }).catch(toastError);
    setBusy(false);
  };
  if (!isOver(run.state))
    return (
      <Empty icon={Package} title={t("runs.notDelivered")}>
        {t("runs.notDeliveredHint")}
      </Empty>
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
                    (now) => {
                      now.set("path", each.path);
                      return now;
                    },
                    { replace: true },
                  )
                }
              >
                <span className={styles.path}>{each.path}</span>
                <span className={styles.soft}>{size(each.size)}</span>
              </button>
              {each.note && <p className={styles.odd}>{each.note}</p>}
            </li>
          ))}
          {missing.map((each) => (
            <li key={each.path} className={styles.missing}>
              <FileX2 size={15} aria-hidden />
              <div>
                <span className={styles.path}>{shortPath(each.path)}</span>{" "}
                <Badge tone={each.required ? "danger" : "neutral"}>
                  {each.required ? t("runs.missing") : t("runs.missingOptional")}
                </Badge>
                <p className={styles.soft}>{each.reason}</p>
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
          <Preview
            key={path}
            name={path}
            size={chosen.size}
            load={load}
            pictures={pictures}
            onDownload={() => save(path)}
          />
        </div>
      ) : (
        <Empty icon={Package} title={t("runs.nothingDelivered")}>
          <Coded text={missing.length > 0 ? t("runs.missingHint") : t("runs.nothingAsked")} />
        </Empty>
      )}
    </div>
  );
}

function nameOf(path: string): string {
  return path.split("/").pop() || path;
}
