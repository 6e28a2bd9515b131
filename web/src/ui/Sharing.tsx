import { Lock, Users } from "lucide-react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { type Me, seesAll, useMe } from "@/shell/me";
import { Badge } from "@/ui/Badge";
import type { MenuItem } from "@/ui/Menu";
import { toast, toastError } from "@/ui/toasts";

/** A session, a run or a sandbox, as far as its owner and its visibility go. */
export interface Owned {
  visibility?: Schema<"Visibility">;
  /** The owner; nothing for what is older than owners. */
  subject?: string | null;
  /** Name of the key that made it, as sessions call it. */
  created_by?: string | null;
  /** The same, as runs and sandboxes call it. */
  createdBy?: string | null;
}

function mayShare(me: Me | undefined, owned: Owned): boolean {
  return Boolean(me && owned.subject && (owned.subject === me.subject || seesAll(me)));
}

/** The menu item that shares something with the tenant or makes it private; none for those who may not. */
export function useSharing(path: string, owned: Owned | null, onChanged: () => unknown): MenuItem[] {
  const { t } = useTranslation();
  const me = useMe().data;
  if (!owned || !mayShare(me, owned)) return [];
  const shared = owned.visibility === "tenant";
  const select = async () => {
    try {
      await api.patch(path, { visibility: shared ? "private" : "tenant" });
      toast(t(shared ? "common.sharing.isPrivate" : "common.sharing.isShared"), { tone: "good" });
      await onChanged();
    } catch (error) {
      toastError(error);
    }
  };
  const label = t(shared ? "common.sharing.unshare" : "common.sharing.share");
  return [{ label, icon: shared ? Lock : Users, onSelect: () => void select() }];
}

/** Says that something is shared, and whose it is if it is not one's own. */
export function SharedBadge({ owned }: { owned: Owned | null }) {
  const { t } = useTranslation();
  const me = useMe().data;
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
