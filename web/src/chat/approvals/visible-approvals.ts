/** Approvals in view, and the one being edited or rejected. */

import { create } from "zustand";

export type ApprovalMode = "edit" | "reject" | "answer";

interface VisibleApprovals {
  open: { id: string; mode: ApprovalMode } | null;
  /** The approval that keyboard shortcuts decide. */
  current: string | null;
  /** Ids of approvals in view. */
  inView: ReadonlySet<string>;
  setOpen: (id: string | null, mode?: ApprovalMode) => void;
  setInView: (id: string, visible: boolean) => void;
}

export const useVisibleApprovals = create<VisibleApprovals>((set) => ({
  open: null,
  current: null,
  inView: new Set(),
  setOpen: (id, mode) => set({ open: id && mode ? { id, mode } : null }),
  setInView: (id, visible) =>
    set(({ inView }) => {
      if (inView.has(id) === visible) return {};
      const next = new Set(inView);
      if (visible) next.add(id);
      else next.delete(id);
      return { inView: next };
    }),
}));
