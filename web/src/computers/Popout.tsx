import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { useParams } from "wouter";
import { useTitle } from "@/ui/Page";
import { Failed, Loading } from "@/ui/states";
import { boxOf, useKinds, useSandbox } from "./box";
import styles from "./Computers.module.css";
import { ComputerView } from "./ComputerViews";
import { fitting, isView } from "./views";

/** One view of one computer, in a window of its own. */
export default function Popout() {
  const { t } = useTranslation();
  const { sandbox: id = "", view: wanted } = useParams();
  const query = useSandbox(id);
  const kinds = useKinds().data;
  const box = query.data && boxOf(query.data);
  const screen = kinds?.find((each) => each.name === box?.kind)?.screen;
  const view = fitting(isView(wanted) ? wanted : "desktop", box?.kind ?? "linux", screen);
  const name = query.data?.metadata.name || box?.kind || id;
  useTitle(`${t(`computers.views.${view}`)} · ${name}`);
  useEffect(() => {
    // Windows that the console opens have a name by which they are found again; one that was moved to a tab has not.
    if (!window.name) window.name = `paddock-${id}-${view}`;
  }, [id, view]);
  return (
    <main className={styles.popout}>
      <h1 className="visually-hidden">
        {t(`computers.views.${view}`)} <bdi>{name}</bdi>
      </h1>
      {box ? (
        <ComputerView box={box} view={view} active alone />
      ) : query.error ? (
        <Failed error={query.error} retry={() => void query.refetch()} />
      ) : (
        <Loading />
      )}
    </main>
  );
}
