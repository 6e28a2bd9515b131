import { Compass } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { Page } from "@/ui/layout/Page";
import { EmptyState } from "@/ui/layout/query-states";

export default function NotFound() {
  const { t } = useTranslation();
  return (
    <Page title={t("shell.notFound.title")}>
      <EmptyState
        icon={Compass}
        title={t("shell.notFound.nothing", { path: window.location.pathname })}
        action={<Link href="/">{t("shell.notFound.home")}</Link>}
      >
        {t("shell.notFound.about")}
      </EmptyState>
    </Page>
  );
}
