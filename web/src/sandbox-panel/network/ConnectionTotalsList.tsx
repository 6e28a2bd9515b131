import { useLayoutEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/controls/Button";
import { safeDisplayName } from "../files/sandbox-paths";
import { type ConnectionTotals, sumTotals, targetText } from "./connections";
import styles from "./network.module.css";
import { TransferredBytes } from "./TransferredBytes";

const INITIAL_ROWS = 5;
/** Width of the page for two columns, as in the styles. In one column, open totals would hide the connections. */
const MIN_WIDTH_OPEN = 1000;

/** Sums of connections by target, the most used targets first. */
export function ConnectionTotalsList({ totals }: { totals: readonly ConnectionTotals[] }) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  const [open, setOpen] = useState(false);
  const details = useRef<HTMLDetailsElement>(null);
  useLayoutEffect(() => {
    const view = details.current?.closest(`.${styles.view}`);
    if (view && view.clientWidth >= MIN_WIDTH_OPEN) setOpen(true);
  }, []);
  const sums = sumTotals(totals);
  return (
    <section aria-labelledby="network-totals">
      <details
        ref={details}
        className={styles.totals}
        open={open}
        onToggle={(event) => setOpen(event.currentTarget.open)}
      >
        <summary>
          <h2 id="network-totals">{t("network.totals.title")}</h2>
          <TransferredBytes sent={sums.sentBytes} received={sums.receivedBytes} />
        </summary>
        <ul className={styles.connections}>
          {(all ? totals : totals.slice(0, INITIAL_ROWS)).map((each) => {
            const target = targetText(each.host, each.port);
            return (
              <li key={target} className={styles.total}>
                <bdi className={styles.target}>{safeDisplayName(target)}</bdi>
                <span className={styles.counts}>
                  {t("network.totals.connections", { count: each.connections })}
                  {each.denied > 0 && (
                    <span className={styles.denied}>{t("network.totals.denied", { count: each.denied })}</span>
                  )}
                </span>
                <TransferredBytes sent={each.sentBytes} received={each.receivedBytes} />
              </li>
            );
          })}
        </ul>
        {!all && totals.length > INITIAL_ROWS && (
          <Button size="small" tone="quiet" onClick={() => setAll(true)}>
            {t("network.totals.all", { count: totals.length })}
          </Button>
        )}
      </details>
    </section>
  );
}
