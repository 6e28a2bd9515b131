/** Who is signed in. */

import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";

export interface Me {
  /** That of the key. */
  name: string;
  tenant: string;
  scopes: string[];
  keyId: string | null;
  /** Whom the key is for, if it says so. */
  user?: string;
  /** Owner of what is made with the key. */
  subject: string;
  /** When the key stops working. */
  expiresAt?: string;
}

export const ME = ["me"];

/** Asked again now and then, so that a key that was revoked shows, and a server that is away. */
export function useMe() {
  return useQuery({
    queryKey: ME,
    queryFn: ({ signal }) => api.get<Me>("/v1/me", { signal }),
    staleTime: 15_000,
    refetchInterval: 20_000,
  });
}

/** Whether whoever is signed in may do something: `sessions:write`, say. */
export function may(me: Me | undefined, scope: string): boolean {
  if (!me) return false;
  const room = scope.split(":")[0];
  return (
    me.scopes.includes("admin") ||
    me.scopes.includes(scope) ||
    (scope.endsWith(":read") && me.scopes.includes(`${room}:write`))
  );
}

/** Whether a key sees what others of its tenant keep private. */
export function seesAll(me: Me): boolean {
  return me.scopes.includes("admin") || me.scopes.includes("tenant:all");
}

/** Whether somebody may see and do all that somebody else may. */
export function covers(me: Me, other: Me): boolean {
  if (me.subject !== other.subject && !seesAll(me)) return false;
  return me.tenant === other.tenant && other.scopes.every((scope) => may(me, scope));
}
