import {
  FolderTree,
  Hourglass,
  ListChecks,
  type LucideIcon,
  Monitor,
  MonitorX,
  Pause,
  SquareTerminal,
} from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { BoxView } from "@/session/types";
import { Empty } from "@/ui/states";
import { Tabs } from "@/ui/Tabs";
import { BuildingImage } from "./Building";
import { type Condition, useCondition, useKinds, useNews } from "./box";
import styles from "./Computers.module.css";
import { Desktop } from "./desktop/Desktop";
import { Files } from "./files/Files";
import { shown } from "./files/paths";
import { type Kept, keep, same } from "./keep";
import { Output } from "./Output";
import { TerminalView } from "./terminal/TerminalView";
import { fitting, type View, viewsOf } from "./views";

interface Props {
  box: BoxView;
  /** All boxes that may be come back to; their views stay as they are for a while. */
  boxes?: BoxView[];
  view: View;
  onView: (view: View) => void;
  session?: string;
}

const ICONS: Record<View, LucideIcon> = {
  desktop: Monitor,
  browser: Monitor,
  terminal: SquareTerminal,
  files: FolderTree,
  output: ListChecks,
};

/** The views of one computer. */
export function ComputerViews({ box, boxes = [box], view, onView, session }: Props) {
  const { t } = useTranslation();
  const kinds = useKinds().data;
  const screen = kinds?.find((each) => each.name === box.kind)?.screen;
  const now: Kept = { sandbox: box.id, view: fitting(view, box.kind, screen) };
  const [kept, setKept] = useState<Kept[]>([]);
  const next = keep(kept, now, (each) => boxes.some(({ id }) => id === each.sandbox));
  if (next.length !== kept.length || next.some((each, at) => !kept[at] || !same(each, kept[at]))) setKept(next);
  // In an order that does not change with use: what moves in the page is made anew, frames for example.
  const drawn = [...next].sort((one, other) => (key(one) < key(other) ? -1 : 1));
  return (
    <Tabs
      label={t("computers.viewsOf", { name: shown(box.kind || box.id) })}
      tabs={viewsOf(box.kind, screen).map((id) => ({ id, label: t(`computers.views.${id}`), icon: ICONS[id] }))}
      value={now.view}
      onChange={onView}
    >
      {drawn.map((each) => {
        const shownBox = boxes.find(({ id }) => id === each.sandbox);
        const active = same(each, now);
        return (
          shownBox && (
            <div key={key(each)} className={styles.view} hidden={!active}>
              <ComputerView box={shownBox} view={each.view} active={active} session={session} />
            </div>
          )
        );
      })}
    </Tabs>
  );
}

function key(kept: Kept): string {
  return `${kept.sandbox} ${kept.view}`;
}

interface OneProps {
  box: BoxView;
  view: View;
  active: boolean;
  session?: string;
  alone?: boolean;
}

/** One view, or why there is nothing to see. */
export function ComputerView({ box, view, active, session, alone }: OneProps) {
  const { t } = useTranslation();
  useNews(box);
  const condition = useCondition(box, active);
  if (box.state === "starting")
    return (
      <Empty icon={Hourglass} title={t("chat.doing.starting")}>
        {box.building && <BuildingImage building={box.building} />}
      </Empty>
    );
  if (view === "output") return <Output box={box} session={session} active={active} />;
  if (condition.state === "gone" || condition.state === "broken" || condition.state === "paused")
    return <Ended condition={condition} />;
  if (view === "terminal") return <TerminalView box={box} active={active} alone={alone} session={session} />;
  if (view === "files") return <Files box={box} active={active} alone={alone} />;
  return <Desktop box={box} active={active} alone={alone} />;
}

function Ended({ condition }: { condition: Condition }) {
  const { t } = useTranslation();
  const { state, reason } = condition;
  return (
    <Empty icon={state === "paused" ? Pause : MonitorX} title={t(`computers.ended.${state}`)}>
      {reason && <span className={styles.reason}>{shown(reason)}</span>}
      {t(`computers.ended.${state}Hint`)}
    </Empty>
  );
}
