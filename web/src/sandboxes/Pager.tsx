import { useTranslation } from "react-i18next";
import { Button } from "@/ui/controls/Button";
import styles from "./SandboxesPage.module.css";

/** Page navigation; hidden for a single page. */
export function Pager({ page, pages, onPage }: { page: number; pages: number; onPage: (page: number) => void }) {
  const { t } = useTranslation();
  if (pages <= 1) return null;
  return (
    <nav className={styles.pager} aria-label={t("sandboxes.pages")}>
      <Button size="small" disabled={page <= 1} onClick={() => onPage(page - 1)}>
        {t("sandboxes.before")}
      </Button>
      <span>{t("sandboxes.page", { page, pages })}</span>
      <Button size="small" disabled={page >= pages} onClick={() => onPage(page + 1)}>
        {t("sandboxes.after")}
      </Button>
    </nav>
  );
}
