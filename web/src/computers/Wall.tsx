import { useQuery } from "@tanstack/react-query";
import { LayoutGrid, WifiOff } from "lucide-react";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Badge } from "@/ui/Badge";
import { Select } from "@/ui/forms";
import { Page } from "@/ui/Page";
import { useRemembered } from "@/ui/remember";
import { Empty, Failed, Loading } from "@/ui/states";
import { Time } from "@/ui/Time";
import { kindOf, type Sandbox, useKinds } from "./box";
import styles from "./Computers.module.css";
import { shown } from "./files/paths";
import { type Shown, useWall } from "./useWall";

const WIDTHS = { small: 320, medium: 480, large: 960 } as const;
type Size = keyof typeof WIDTHS;
/** Before this there may be screens of which no picture has come yet. */
const PATIENCE = 4_000;

/** The screens of all boxes at once. */
export default function Wall() {
  const { t } = useTranslation();
  const [size, setSize] = useRemembered<Size>("wall.size", "medium");
  const wall = useWall(WIDTHS[size] ?? WIDTHS.medium);
  const names = useQuery({
    queryKey: ["computers", "running"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SandboxList">>("/v1/sandboxes", { query: { state: "Running", pageSize: 100 }, signal }),
    refetchInterval: 10_000,
  });
  const [patient, setPatient] = useState(true);
  useEffect(() => {
    const timer = setTimeout(() => setPatient(false), PATIENCE);
    return () => clearTimeout(timer);
  }, []);
  const kinds = useKinds().data;
  const running = names.data?.items;
  const awaited = running?.some((each) => kinds?.find(({ name }) => name === kindOf(each))?.screen ?? !kinds) ?? true;
  const screens = Object.values(wall.screens).sort((one, other) => (one.sandbox < other.sandbox ? -1 : 1));
  return (
    <Page
      title={t("computers.wall.title")}
      about={t("computers.wall.about")}
      actions={
        <Select
          aria-label={t("computers.wall.size")}
          value={size}
          onChange={(value) => setSize(value as Size)}
          options={(Object.keys(WIDTHS) as Size[]).map((value) => ({
            value,
            label: t(`computers.wall.sizes.${value}`),
          }))}
        />
      }
    >
      {wall.link === "lost" && !wall.error && (
        <p className={styles.lost} role="status">
          <WifiOff size={16} aria-hidden /> {t("computers.wall.lost")}
        </p>
      )}
      {wall.error ? (
        <Failed error={wall.error} />
      ) : screens.length ? (
        <ul className={styles.wall} data-size={size}>
          {screens.map((screen) => (
            <li key={screen.sandbox}>
              <Tile screen={screen} sandbox={names.data?.items.find((each) => each.id === screen.sandbox)} />
            </li>
          ))}
        </ul>
      ) : awaited && (patient || wall.link !== "live") ? (
        <Loading />
      ) : (
        <Empty
          icon={LayoutGrid}
          title={t("computers.wall.none")}
          action={<Link href="/sandboxes">{t("computers.wall.toSandboxes")}</Link>}
        >
          {t("computers.wall.noneHint")}
        </Empty>
      )}
    </Page>
  );
}

function Tile({ screen, sandbox }: { screen: Shown; sandbox: Sandbox | undefined }) {
  const { t } = useTranslation();
  const kind = sandbox ? kindOf(sandbox) : "";
  const name = shown(sandbox?.metadata.name ?? screen.sandbox);
  return (
    <Link href={`/sandboxes/${screen.sandbox}/desktop`} className={styles.tile}>
      <img
        src={screen.source}
        alt={t("computers.wall.screenOf", { name })}
        width={screen.width}
        height={screen.height}
      />
      <span className={styles.tileFoot}>
        <bdi className={styles.tileName}>{name}</bdi>
        {kind && <Badge>{shown(kind)}</Badge>}
        <span className={styles.soft}>
          <Time at={new Date(screen.at).toISOString()} />
        </span>
      </span>
    </Link>
  );
}
