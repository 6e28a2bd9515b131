import { Camera, Clock, Ellipsis, Pause, Play, Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";
import { IconButton } from "@/ui/controls/Button";
import { Menu } from "@/ui/controls/Menu";
import { useSharingMenuItems } from "@/ui/controls/Sharing";
import { sandboxApiPath, type useSandboxActions } from "./actions";
import {
  availableSandboxActions,
  type Sandbox,
  type SandboxAction,
  sandboxOwner,
  sandboxTitle,
} from "./sandbox-properties";

export const SANDBOX_ACTION_ICONS = {
  pause: Pause,
  resume: Play,
  snapshot: Camera,
  renew: Clock,
  delete: Trash2,
} satisfies Record<SandboxAction, unknown>;

/** Menu of actions for one sandbox. */
export function SandboxMenu({ sandbox, actions }: { sandbox: Sandbox; actions: ReturnType<typeof useSandboxActions> }) {
  const { t } = useTranslation();
  const offered = availableSandboxActions(sandbox);
  // The sandbox of a chat or run is shared together with it.
  const sharing = useSharingMenuItems(
    sandboxApiPath(sandbox.id),
    sandboxOwner(sandbox) ? null : sandbox,
    actions.refreshSandboxes,
  );
  if (offered.length === 0) return null;
  return (
    <Menu
      trigger={
        <IconButton
          size="small"
          icon={Ellipsis}
          label={t("sandboxes.actions", { name: sandboxTitle(sandbox) })}
          busy={actions.busy.has(sandbox.id)}
        />
      }
      items={[
        ...sharing,
        ...offered.map((action) => ({
          label: t(`sandboxes.deeds.${action}`),
          icon: SANDBOX_ACTION_ICONS[action],
          tone: action === "delete" ? ("danger" as const) : undefined,
          onSelect: () =>
            action === "delete" ? actions.removeSandboxes([sandbox.id]) : void actions.performAction(action, [sandbox]),
        })),
      ]}
    />
  );
}
