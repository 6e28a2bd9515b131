import { Ellipsis, House, Search } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { Menu, type MenuItem } from "@/ui/controls/Menu";
import { useAccountActions } from "../account/account-actions";
import { hasScope, useCurrentUser } from "../account/current-user";
import styles from "../Shell.module.css";
import { useHeldTools } from "../status/held-tools";
import { useWaitingApprovals } from "../status/waiting-approvals";
import { CONSOLE_PAGES, isWithinPath } from "./pages";

/** Navigation of small screens. */
export function BottomBar({ onSearch }: { onSearch: () => void }) {
  const { t } = useTranslation();
  const [location, navigate] = useLocation();
  const me = useCurrentUser();
  const waiting = useWaitingApprovals();
  const held = useHeldTools();
  const actions = useAccountActions();
  const pages = CONSOLE_PAGES.filter((page) => !page.scope || hasScope(me.data, page.scope));
  const more: MenuItem[] = [
    { label: t("shell.places.home"), icon: House, onSelect: () => navigate("/") },
    { label: t("shell.palette.title"), icon: Search, onSelect: onSearch },
    ...pages
      .filter((page) => !page.close)
      .map(({ id, path, icon }) => {
        const isHeld = id === "tools" && held.count > 0;
        return {
          label: isHeld ? `${t("shell.places.tools")} (${held.count})` : t(`shell.places.${id}`),
          icon,
          onSelect: () => navigate(isHeld ? held.path : path),
        };
      }),
    ...actions,
  ];
  return (
    <nav className={styles.bottom} aria-label={t("shell.navigation")}>
      {pages
        .filter((page) => page.close)
        .map(({ id, path, icon: Icon }) => (
          <Link
            key={id}
            href={id === "chats" && waiting.count > 0 ? waiting.path : path}
            className={styles.step}
            aria-current={isWithinPath(location, path) ? "page" : undefined}
          >
            <Icon size={20} aria-hidden />
            <span>{t(`shell.places.${id}`)}</span>
            {id === "chats" && waiting.count > 0 && (
              <span className={styles.dot}>
                {waiting.count > 99 ? "99+" : waiting.count}
                <span className="visually-hidden">{t("shell.waiting", { count: waiting.count })}</span>
              </span>
            )}
          </Link>
        ))}
      <Menu
        trigger={
          <button type="button" className={styles.step}>
            <Ellipsis size={20} aria-hidden />
            <span>{t("common.more")}</span>
            {held.count > 0 && (
              <span className={styles.dot}>
                {held.count > 99 ? "99+" : held.count}
                <span className="visually-hidden">{t("shell.heldTools", { count: held.count })}</span>
              </span>
            )}
          </button>
        }
        items={more}
      />
    </nav>
  );
}
