import { CircleCheck, CircleSlash, CircleX, ListChecks, LoaderCircle, type LucideIcon } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { useSession } from "@/session/store";
import type { BoxView, CallView } from "@/session/types";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Empty, Loaded } from "@/ui/states";
import { duration, Time } from "@/ui/Time";
import { standing } from "@/ui/terminal";
import styles from "./Computers.module.css";
import { shown } from "./files/paths";
import { type Deed, deedsOfCalls, deedsOfEvents } from "./output";
import { useBoxEvents } from "./useBoxEvents";

interface Props {
  box: BoxView;
  session?: string;
  active: boolean;
}

/** What tools did in a box, the newest first. */
export function Output({ box, session, active }: Props) {
  return session ? <OfSession box={box} session={session} /> : <OfEvents box={box} active={active} />;
}

function OfSession({ box, session }: { box: BoxView; session: string }) {
  const calls = useSession(session, (link) => link.view.calls);
  return <Deeds deeds={deedsOfCalls(calls, box.id)} />;
}

const TYPES = ["tool.called"] as const;

function OfEvents({ box, active }: { box: BoxView; active: boolean }) {
  const query = useBoxEvents(box.id, TYPES, active);
  return <Loaded query={query}>{(events) => <Deeds deeds={deedsOfEvents(events)} />}</Loaded>;
}

const AT_ONCE = 100;

function Deeds({ deeds }: { deeds: Deed[] }) {
  const { t } = useTranslation();
  const [most, setMost] = useState(AT_ONCE);
  if (!deeds.length)
    return (
      <Empty icon={ListChecks} title={t("computers.output.none")}>
        {t("computers.output.noneHint")}
      </Empty>
    );
  const seen = deeds.slice(-most).reverse();
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
    <section className={styles.output} aria-label={t("computers.views.output")} tabIndex={0}>
      <ol className={styles.deeds}>
        {seen.map((deed) => (
          <li key={deed.id}>
            <DeedRow deed={deed} />
          </li>
        ))}
      </ol>
      {most < deeds.length && (
        <Button size="small" onClick={() => setMost(most + AT_ONCE)}>
          {t("computers.output.earlier", { count: deeds.length - most })}
        </Button>
      )}
    </section>
  );
}

const ICONS: Record<Deed["state"], LucideIcon> = {
  running: LoaderCircle,
  done: CircleCheck,
  failed: CircleX,
  refused: CircleSlash,
};

function DeedRow({ deed }: { deed: Deed }) {
  const { t } = useTranslation();
  const Icon = ICONS[deed.state];
  const head = (
    <>
      <Icon
        size={16}
        className={styles[`deed-${deed.state}`]}
        role="img"
        aria-label={t(`computers.output.${deed.state}`)}
      />
      <span className={styles.tool}>{shown(deed.tool)}</span>
      <bdi className={styles.summary}>{shown(deed.summary)}</bdi>
      <span className={styles.when}>
        {deed.seconds !== null && <span>{duration(deed.seconds)}</span>} <Time at={deed.at} />
      </span>
    </>
  );
  return (
    <>
      {deed.call ? (
        <details className={styles.deed}>
          <summary>{head}</summary>
          <Details call={deed.call} />
        </details>
      ) : (
        <div className={styles.deed}>{head}</div>
      )}
      {deed.leftOut > 0 && <p className={styles.soft}>{t("computers.output.leftOut", { count: deed.leftOut })}</p>}
    </>
  );
}

function Details({ call }: { call: CallView }) {
  const { t } = useTranslation();
  const said = call.result?.content
    .map((part) => (part.type === "text" ? part.text : `[${shown(part.name)}]`))
    .join("\n");
  return (
    <div className={styles.details}>
      <Code wrap label={t("computers.output.arguments")} text={JSON.stringify(call.arguments, null, 2) ?? ""} />
      {said !== undefined && <Code wrap label={t("computers.output.result")} text={said} />}
      {call.output && <Code wrap label={t("computers.output.soFar")} text={standing(call.output)} />}
    </div>
  );
}
