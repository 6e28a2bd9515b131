import { Lock, Users } from "lucide-react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { type CurrentUser, seesWholeTenant, useCurrentUser } from "@/shell/account/current-user";
import { Badge } from "@/ui/controls/Badge";
import type { MenuItem } from "@/ui/controls/Menu";
import { showErrorToast, showToast } from "@/ui/controls/toasts";

/** Owner and visibility of a session, run or sandbox. */
export interface OwnedResource {
  visibility?: Schema<"Visibility">;
  /** The owner; missing on objects from before owners existed. */
  subject?: string | null;
  /** Name of the creating key, on sessions. */
  created_by?: string | null;
  /** Name of the creating key, on runs and sandboxes. */
  createdBy?: string | null;
}

function mayChangeSharing(me: CurrentUser | undefined, owned: OwnedResource): boolean {
  return Boolean(me && owned.subject && (owned.subject === me.subject || seesWholeTenant(me)));
}

/** Menu item that shares an object with the tenant or makes it private; none without permission. */
export function useSharingMenuItems(path: string, owned: OwnedResource | null, onChanged: () => unknown): MenuItem[] {
  const { t } = useTranslation();
  const me = useCurrentUser().data;
  if (!owned || !mayChangeSharing(me, owned)) return [];
  const shared = owned.visibility === "tenant";
  const select = async () => {
    try {
      await api.patch(path, { visibility: shared ? "private" : "tenant" });
      showToast(t(shared ? "common.sharing.isPrivate" : "common.sharing.isShared"), { tone: "good" });
      await onChanged();
    } catch (error) {
      showErrorToast(error);
    }
  };
  const label = t(shared ? "common.sharing.unshare" : "common.sharing.share");
  return [{ label, icon: shared ? Lock : Users, onSelect: () => void select() }];
}

/** Badge of a shared object, with its owner if it is another user. */
export function SharedBadge({ owned }: { owned: OwnedResource | null }) {
  const { t } = useTranslation();
  const me = useCurrentUser().data;
  if (!me || !owned?.subject) return null;
  const own = owned.subject === me.subject;
  const shared = owned.visibility === "tenant";
  if (own && !shared) return null;
  const name = owned.created_by ?? owned.createdBy ?? owned.subject;
  if (own) return <Badge tone="info">{t("common.sharing.shared")}</Badge>;
  return (
    <Badge tone={shared ? "info" : "neutral"}>{t(`common.sharing.${shared ? "sharedBy" : "of"}`, { name })}</Badge>
  );
}
