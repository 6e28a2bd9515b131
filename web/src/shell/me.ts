/** Who is signed in. */

import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";

export interface Me {
  name: string;
  tenant: string;
  scopes: string[];
  keyId: string | null;
}

export function useMe() {
  return useQuery({ queryKey: ["me"], queryFn: ({ signal }) => api.get<Me>("/v1/me", { signal }), staleTime: 60_000 });
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
