/** Which approvals are in view, and which of them is being edited or rejected. */

import { create } from "zustand";

export type ApprovalMode = "edit" | "reject" | "answer";

interface VisibleApprovals {
  open: { id: string; mode: ApprovalMode } | null;
  /** The approval that keyboard shortcuts decide. */
  current: string | null;
  /** Ids of approvals in view. */
  seen: ReadonlySet<string>;
  setOpen: (id: string | null, mode?: ApprovalMode) => void;
  see: (id: string, visible: boolean) => void;
}

export const useVisibleApprovals = create<VisibleApprovals>((set) => ({
  open: null,
  current: null,
  seen: new Set(),
  setOpen: (id, mode) => set({ open: id && mode ? { id, mode } : null }),
  see: (id, visible) =>
    set(({ seen }) => {
      if (seen.has(id) === visible) return {};
      const next = new Set(seen);
      if (visible) next.add(id);
      else next.delete(id);
      return { seen: next };
    }),
}));
