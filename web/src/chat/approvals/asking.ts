/** Which approvals are on the screen, and which of them is being edited or rejected. */

import { create } from "zustand";

export type Mode = "edit" | "reject" | "answer";

interface Asking {
  open: { id: string; mode: Mode } | null;
  /** The one that keys decide. */
  current: string | null;
  /** Ids of approvals that can be seen. */
  seen: ReadonlySet<string>;
  setOpen: (id: string | null, mode?: Mode) => void;
  see: (id: string, visible: boolean) => void;
}

export const useAsking = create<Asking>((set) => ({
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
