/** The signed-in user. */

import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";

export interface CurrentUser {
  /** Name of the API key. */
  name: string;
  tenant: string;
  scopes: string[];
  keyId: string | null;
  /** Person the key is for, if set. */
  user?: string;
  /** Owner of objects created with the key. */
  subject: string;
  /** Expiry of the key. */
  expiresAt?: string;
}

export const CURRENT_USER_QUERY = ["me"];

/** Refetched regularly, to notice a revoked key or an offline server. */
export function useCurrentUser() {
  return useQuery({
    queryKey: CURRENT_USER_QUERY,
    queryFn: ({ signal }) => api.get<CurrentUser>("/v1/me", { signal }),
    staleTime: 15_000,
    refetchInterval: 20_000,
  });
}

/** Whether the user has a scope such as `sessions:write`. */
export function hasScope(me: CurrentUser | undefined, scope: string): boolean {
  if (!me) return false;
  const resource = scope.split(":")[0];
  return (
    me.scopes.includes("admin") ||
    me.scopes.includes(scope) ||
    ((scope.endsWith(":read") || scope === "mcp:use") && me.scopes.includes(`${resource}:write`))
  );
}

/** Whether the key sees private objects of others in its tenant. */
export function seesWholeTenant(me: CurrentUser): boolean {
  return me.scopes.includes("admin") || me.scopes.includes("tenant:all");
}

/** Whether one user may see and do everything that another may. */
export function coversAccess(me: CurrentUser, other: CurrentUser): boolean {
  if (me.subject !== other.subject && !seesWholeTenant(me)) return false;
  return me.tenant === other.tenant && other.scopes.every((scope) => hasScope(me, scope));
}
