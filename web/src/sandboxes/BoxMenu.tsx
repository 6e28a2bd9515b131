import { Camera, Clock, Ellipsis, Pause, Play, Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";
import { IconButton } from "@/ui/Button";
import { Menu } from "@/ui/Menu";
import type { useDeeds } from "./actions";
import { type Deed, deedsOf, type Sandbox, titleOf } from "./facts";

export const ICONS = { pause: Pause, resume: Play, snapshot: Camera, renew: Clock, delete: Trash2 } satisfies Record<
  Deed,
  unknown
>;

/** What can be done with one sandbox. */
export function BoxMenu({ box, deeds }: { box: Sandbox; deeds: ReturnType<typeof useDeeds> }) {
  const { t } = useTranslation();
  const offered = deedsOf(box);
  if (offered.length === 0) return null;
  return (
    <Menu
      trigger={
        <IconButton
          size="small"
          icon={Ellipsis}
          label={t("sandboxes.actions", { name: titleOf(box) })}
          busy={deeds.busy.has(box.id)}
        />
      }
      items={offered.map((deed) => ({
        label: t(`sandboxes.deeds.${deed}`),
        icon: ICONS[deed],
        tone: deed === "delete" ? ("danger" as const) : undefined,
        onSelect: () => (deed === "delete" ? deeds.removeBoxes([box.id]) : void deeds.perform(deed, [box])),
      }))}
    />
  );
}
