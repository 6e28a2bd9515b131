import { Bell, CircleUserRound, PanelLeftClose, PanelLeftOpen, Search } from "lucide-react";
import type { ReactElement } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { KeyCap } from "@/ui/controls/Badge";
import { IconButton } from "@/ui/controls/Button";
import { Menu } from "@/ui/controls/Menu";
import { Tooltip } from "@/ui/controls/Tooltip";
import { useStoredState } from "@/ui/hooks/browser-storage";
import { useAccountActions } from "../account/account-actions";
import { hasScope, useCurrentUser } from "../account/current-user";
import styles from "../Shell.module.css";
import { useHeldTools } from "../status/held-tools";
import { useWaitingApprovals } from "../status/waiting-approvals";
import { isApple } from "./keyboard-shortcuts";
import { CONSOLE_PAGES, isWithinPath } from "./pages";

/** Navigation at the left. Collapsed it shows only icons, with tooltips. */
export function Sidebar({ onSearch, onShortcuts }: { onSearch: () => void; onShortcuts: () => void }) {
  const { t } = useTranslation();
  const [location] = useLocation();
  const [open, setOpen] = useStoredState("rail", true);
  const me = useCurrentUser();
  const waiting = useWaitingApprovals();
  const held = useHeldTools();
  const actions = useAccountActions(onShortcuts);
  const withTooltip = (label: string, child: ReactElement<Record<string, unknown>>) =>
    open ? child : <Tooltip text={label}>{child}</Tooltip>;
  const name = me.data?.user ?? me.data?.name ?? "";

  return (
    <header className={styles.rail} data-open={open || undefined}>
      <div className={styles.railHead}>
        <Link href="/" className={styles.brand} aria-label={`Paddock: ${t("shell.places.home")}`}>
          <img src="/icon.svg" alt="" width={26} height={26} />
          {open && <span>Paddock</span>}
        </Link>
        <IconButton
          size="small"
          icon={open ? PanelLeftClose : PanelLeftOpen}
          label={t(open ? "shell.rail.close" : "shell.rail.open")}
          aria-expanded={open}
          onClick={() => setOpen(!open)}
        />
      </div>
      {withTooltip(
        t("shell.palette.title"),
        <button
          type="button"
          className={styles.find}
          onClick={onSearch}
          aria-label={open ? undefined : t("shell.palette.title")}
        >
          <Search size={16} aria-hidden />
          {open && <span>{t("shell.palette.short")}</span>}
          {open && (
            <span className={styles.keys} aria-hidden>
              <KeyCap>{isApple ? "⌘K" : "Ctrl K"}</KeyCap>
            </span>
          )}
        </button>,
      )}
      <nav className={styles.links} aria-label={t("shell.navigation")}>
        {CONSOLE_PAGES.filter((page) => !page.scope || hasScope(me.data, page.scope)).map(
          ({ id, path, icon: Icon }) => {
            const isCurrent = isWithinPath(location, path);
            const label = t(`shell.places.${id}`);
            const link = (
              <Link
                href={path}
                className={styles.link}
                aria-current={isCurrent ? "page" : undefined}
                aria-label={label}
              >
                <Icon size={18} aria-hidden />
                {open && <span>{label}</span>}
              </Link>
            );
            return (
              <div key={id} className={styles.row}>
                {withTooltip(label, link)}
                {id === "chats" && waiting.count > 0 && (
                  <WaitingCount {...waiting} open={open} label={t("shell.waiting", { count: waiting.count })} />
                )}
                {id === "tools" && held.count > 0 && (
                  <WaitingCount {...held} open={open} label={t("shell.heldTools", { count: held.count })} />
                )}
              </div>
            );
          },
        )}
      </nav>
      <div className={styles.railFoot}>
        <Menu
          trigger={
            <button type="button" className={styles.account}>
              <CircleUserRound size={20} aria-hidden />
              <span className="visually-hidden">{t("shell.account", { name })}</span>
              {open && (
                <span className={styles.user}>
                  <bdi>{name}</bdi>
                  <bdi className={styles.soft}>{me.data?.tenant}</bdi>
                </span>
              )}
            </button>
          }
          items={actions}
        />
      </div>
    </header>
  );
}

/** Link to what waits for a decision, with its number. */
function WaitingCount({ count, path, label, open }: { count: number; path: string; label: string; open: boolean }) {
  return (
    <Link href={path} className={styles.count} aria-label={label} title={label}>
      {open && <Bell size={12} aria-hidden />}
      {count > 99 ? "99+" : count}
    </Link>
  );
}
