import { Camera, Clock, Ellipsis, Pause, Play, Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";
import { IconButton } from "@/ui/Button";
import { Menu } from "@/ui/Menu";
import { useSharing } from "@/ui/Sharing";
import { pathOf, type useDeeds } from "./actions";
import { type Deed, deedsOf, ownerOf, type Sandbox, titleOf } from "./facts";

export const ICONS = { pause: Pause, resume: Play, snapshot: Camera, renew: Clock, delete: Trash2 } satisfies Record<
  Deed,
  unknown
>;

/** What can be done with one sandbox. */
export function BoxMenu({ box, deeds }: { box: Sandbox; deeds: ReturnType<typeof useDeeds> }) {
  const { t } = useTranslation();
  const offered = deedsOf(box);
  // The sandbox of a chat or a run is shared with it.
  const sharing = useSharing(pathOf(box.id), ownerOf(box) ? null : box, deeds.again);
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
      items={[
        ...sharing,
        ...offered.map((deed) => ({
          label: t(`sandboxes.deeds.${deed}`),
          icon: ICONS[deed],
          tone: deed === "delete" ? ("danger" as const) : undefined,
          onSelect: () => (deed === "delete" ? deeds.removeBoxes([box.id]) : void deeds.perform(deed, [box])),
        })),
      ]}
    />
  );
}
