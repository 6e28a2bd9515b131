import { Box, Camera, Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { useUrlQuery } from "@/shell/navigation/useUrlQuery";
import { Button } from "@/ui/controls/Button";
import { Tabs } from "@/ui/controls/Tabs";
import { Page } from "@/ui/layout/Page";
import { CreateSandbox } from "./CreateSandbox";
import { SandboxList } from "./SandboxList";
import { SnapshotList } from "./SnapshotList";

/** All sandboxes and snapshots; filters are in the URL. */
export default function SandboxesPage() {
  const { t } = useTranslation();
  const { get, set } = useUrlQuery();
  const me = useCurrentUser().data;
  const writes = hasScope(me, "sandboxes:write");
  const tab = get("tab") === "snapshots" ? "snapshots" : "sandboxes";
  return (
    <Page
      title={t("sandboxes.title")}
      about={t("sandboxes.about")}
      actions={
        writes && (
          <Button tone="accent" icon={Plus} onClick={() => set({ create: "1" })}>
            {t("sandboxes.new")}
          </Button>
        )
      }
    >
      <Tabs
        label={t("sandboxes.title")}
        value={tab}
        onChange={(id) => set({ tab: id === "snapshots" ? id : "" })}
        tabs={[
          { id: "sandboxes", label: t("sandboxes.title"), icon: Box },
          { id: "snapshots", label: t("sandboxes.snapshots.title"), icon: Camera },
        ]}
      >
        {tab === "snapshots" ? <SnapshotList writes={writes} /> : <SandboxList writes={writes} />}
      </Tabs>
      {get("create") && <CreateSandbox snapshot={get("snapshot")} onClose={() => set({ create: "", snapshot: "" })} />}
    </Page>
  );
}
