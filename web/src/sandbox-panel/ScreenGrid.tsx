import { useQuery } from "@tanstack/react-query";
import { LayoutGrid, WifiOff } from "lucide-react";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Badge } from "@/ui/controls/Badge";
import { Select } from "@/ui/controls/forms";
import { RelativeTime } from "@/ui/format/formats";
import { useStoredState } from "@/ui/hooks/browser-storage";
import { Page } from "@/ui/layout/Page";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { safeDisplayName } from "./files/sandbox-paths";
import styles from "./SandboxPanel.module.css";
import { type Sandbox, sandboxKind, useSandboxKinds } from "./sandbox-queries";
import { type ShownScreen, useScreenGrid } from "./useScreenGrid";

const WIDTHS = { small: 320, medium: 480, large: 960 } as const;
type TileSize = keyof typeof WIDTHS;
/** How long to wait before reporting screens without a picture. */
const FIRST_PICTURE_MS = 4_000;

/** Screens of all sandboxes at once. */
export default function ScreenGrid() {
  const { t } = useTranslation();
  const [size, setSize] = useStoredState<TileSize>("wall.size", "medium");
  const grid = useScreenGrid(WIDTHS[size] ?? WIDTHS.medium);
  const names = useQuery({
    queryKey: ["sandboxPanel", "running"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SandboxListResponse">>("/v1/sandboxes", { query: { state: "Running", pageSize: 100 }, signal }),
    refetchInterval: 10_000,
  });
  const [isFirstWait, setIsFirstWait] = useState(true);
  useEffect(() => {
    const timer = setTimeout(() => setIsFirstWait(false), FIRST_PICTURE_MS);
    return () => clearTimeout(timer);
  }, []);
  const kinds = useSandboxKinds().data;
  const running = names.data?.items;
  const isAwaitingPictures =
    running?.some((each) => kinds?.find(({ name }) => name === sandboxKind(each))?.screen ?? !kinds) ?? true;
  const screens = Object.values(grid.screens).sort((one, other) => (one.sandbox < other.sandbox ? -1 : 1));
  return (
    <Page
      title={t("sandboxPanel.wall.title")}
      about={t("sandboxPanel.wall.about")}
      actions={
        <Select
          aria-label={t("sandboxPanel.wall.size")}
          value={size}
          onChange={(value) => setSize(value as TileSize)}
          options={(Object.keys(WIDTHS) as TileSize[]).map((value) => ({
            value,
            label: t(`sandboxPanel.wall.sizes.${value}`),
          }))}
        />
      }
    >
      {grid.link === "lost" && !grid.error && (
        <p className={styles.lost} role="status">
          <WifiOff size={16} aria-hidden /> {t("sandboxPanel.wall.lost")}
        </p>
      )}
      {grid.error ? (
        <ErrorState error={grid.error} />
      ) : screens.length ? (
        <ul className={styles.grid} data-size={size}>
          {screens.map((screen) => (
            <li key={screen.sandbox}>
              <ScreenTile screen={screen} sandbox={names.data?.items.find((each) => each.id === screen.sandbox)} />
            </li>
          ))}
        </ul>
      ) : isAwaitingPictures && (isFirstWait || grid.link !== "live") ? (
        <LoadingBars />
      ) : (
        <EmptyState
          icon={LayoutGrid}
          title={t("sandboxPanel.wall.none")}
          action={<Link href="/sandboxes">{t("sandboxPanel.wall.toSandboxes")}</Link>}
        >
          {t("sandboxPanel.wall.noneHint")}
        </EmptyState>
      )}
    </Page>
  );
}

function ScreenTile({ screen, sandbox }: { screen: ShownScreen; sandbox: Sandbox | undefined }) {
  const { t } = useTranslation();
  const kind = sandbox ? sandboxKind(sandbox) : "";
  const name = safeDisplayName(sandbox?.metadata.name ?? screen.sandbox);
  return (
    <Link href={`/sandboxes/${screen.sandbox}/desktop`} className={styles.tile}>
      <img
        src={screen.source}
        alt={t("sandboxPanel.wall.screenOf", { name })}
        width={screen.width}
        height={screen.height}
      />
      <span className={styles.tileFoot}>
        <bdi className={styles.tileName}>{name}</bdi>
        {kind && <Badge>{safeDisplayName(kind)}</Badge>}
        <span className={styles.soft}>
          <RelativeTime at={new Date(screen.at).toISOString()} />
        </span>
      </span>
    </Link>
  );
}
