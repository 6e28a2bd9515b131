import { Box, Code, Globe, type LucideIcon, Monitor, MonitorX, Smartphone } from "lucide-react";
import { useTranslation } from "react-i18next";
import type { BoxView } from "@/session/types";
import { Empty } from "@/ui/states";
import { useKinds } from "./box";
import styles from "./Computers.module.css";
import { ComputerViews } from "./ComputerViews";
import { shown } from "./files/paths";
import { unlink } from "./useLinked";
import { fitting, type View } from "./views";

export type { View } from "./views";

export interface ComputersProps {
  /** Boxes to show, in the order of their tabs. */
  boxes: BoxView[];
  /** The chosen box and view; null if none is. */
  chosen: { sandbox: string; view: View } | null;
  onChoose: (sandbox: string, view: View) => void;
  /** For the output view: what tools did there, newest last. */
  session?: string;
}

const ICONS: Record<string, LucideIcon> = {
  code: Code,
  browser: Globe,
  mobile: Smartphone,
  linux: Monitor,
  windows: Monitor,
};

/** The agent's computers: a tab for each, and in each its views. */
export function Computers({ boxes, chosen, onChoose, session }: ComputersProps) {
  const { t } = useTranslation();
  const kinds = useKinds().data;
  const box = boxes.find((each) => each.id === chosen?.sandbox) ?? boxes[0];
  if (!box)
    return (
      <Empty icon={MonitorX} title={t("computers.none")}>
        {t("computers.noneHint")}
      </Empty>
    );
  const screenOf = (kind: string) => kinds?.find((each) => each.name === kind)?.screen;
  const view = fitting(chosen?.sandbox === box.id ? chosen.view : "desktop", box.kind, screenOf(box.kind));
  const choose = (sandbox: string, next: View) => {
    unlink();
    onChoose(sandbox, next);
  };
  return (
    <section className={styles.computers} aria-label={t("computers.label")}>
      {boxes.length > 1 && (
        <div className={styles.boxes} role="tablist" aria-label={t("computers.label")}>
          {boxes.map((each) => {
            const Icon = ICONS[each.kind] ?? Box;
            return (
              <button
                key={each.id}
                type="button"
                role="tab"
                className={styles.box}
                aria-selected={each.id === box.id}
                tabIndex={each.id === box.id ? 0 : -1}
                onClick={() => choose(each.id, fitting(view, each.kind, screenOf(each.kind)))}
                onKeyDown={(event) => step(event)}
              >
                <Icon size={15} aria-hidden />
                <span>{shortName(each, boxes)}</span>
                <span className={styles.dot} data-state={each.state} aria-hidden />
                {each.state !== "ready" && <span className={styles.soft}>{t(`computers.states.${each.state}`)}</span>}
              </button>
            );
          })}
        </div>
      )}
      <ComputerViews box={box} boxes={boxes} view={view} onView={(next) => choose(box.id, next)} session={session} />
    </section>
  );
}

/** The kind, and where there are several of one the end of the id, too. */
function shortName(box: BoxView, boxes: BoxView[]): string {
  const kind = shown(box.kind || box.id);
  const several = boxes.filter((each) => each.kind === box.kind).length > 1;
  return several && box.kind ? `${kind} ${box.id.slice(-4)}` : kind;
}

/** Arrow keys go from one tab to the next. */
function step(event: React.KeyboardEvent<HTMLButtonElement>): void {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  const tabs = [...(event.currentTarget.parentElement?.querySelectorAll<HTMLButtonElement>('[role="tab"]') ?? [])];
  const next = tabs[(tabs.indexOf(event.currentTarget) + by + tabs.length) % tabs.length];
  event.preventDefault();
  next?.focus();
  next?.click();
}
