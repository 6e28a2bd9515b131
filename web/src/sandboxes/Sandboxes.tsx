import { Box, Camera, Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { useAddress } from "@/shell/address";
import { may, useMe } from "@/shell/me";
import { Button } from "@/ui/Button";
import { Page } from "@/ui/Page";
import { Tabs } from "@/ui/Tabs";
import { CreateSandbox } from "./CreateSandbox";
import { SandboxList } from "./SandboxList";
import { Snapshots } from "./Snapshots";

/** All sandboxes and snapshots; what is filtered and opened is in the address. */
export default function Sandboxes() {
  const { t } = useTranslation();
  const { get, set } = useAddress();
  const me = useMe().data;
  const writes = may(me, "sandboxes:write");
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
        {tab === "snapshots" ? <Snapshots writes={writes} /> : <SandboxList writes={writes} />}
      </Tabs>
      {get("create") && <CreateSandbox snapshot={get("snapshot")} onClose={() => set({ create: "", snapshot: "" })} />}
    </Page>
  );
}
