import { describe, expect, it } from "vitest";
import {
  allowsTarget,
  type Connection,
  canAllow,
  connectionOutcome,
  connectionTarget,
  formatStartTime,
  refusalParams,
  sumTotals,
  undoAllowRequest,
} from "./connections";

function connection(more: Partial<Connection>): Connection {
  return {
    id: "conn-1",
    startedAt: "2026-01-02T03:04:05Z",
    seconds: 1,
    name: "a.org",
    port: 443,
    sentBytes: 0,
    receivedBytes: 0,
    decision: "allowed",
    open: false,
    ...more,
  };
}

describe("a connection", () => {
  it("has a target as rules contain it", () => {
    expect(connectionTarget(connection({}))).toBe("a.org:443");
    expect(connectionTarget(connection({ name: null, address: "192.0.2.1" }))).toBe("192.0.2.1:443");
    expect(connectionTarget(connection({ name: undefined, address: "2001:db8::1" }))).toBe("[2001:db8::1]:443");
  });

  it("is open, allowed, denied or failed", () => {
    expect(
      [
        connection({ open: true }),
        connection({}),
        connection({ decision: "denied", refusal: "no_rule" }),
        connection({ refusal: "unreachable" }),
        connection({ refusal: "policy_changed" }),
      ].map(connectionOutcome),
    ).toEqual(["open", "allowed", "denied", "failed", "failed"]);
  });

  it("can be allowed if only the policy denied it", () => {
    const denied = (refusal: Connection["refusal"]) => connection({ decision: "denied", refusal });
    expect(
      (["no_rule", "deny_rule", "bound", "private_address", "server_name", "limit"] as const).map((refusal) =>
        canAllow(denied(refusal)),
      ),
    ).toEqual([true, true, false, false, false, false]);
    expect(canAllow(connection({ refusal: "unreachable" }))).toBe(false);
    expect(canAllow({ ...denied("no_rule"), name: null, address: null })).toBe(false);
  });

  it("has the setting or the reason of its refusal", () => {
    const params = (message: string) => refusalParams(connection({ message }));
    expect(params("The sandbox has 512 open connections (network.max_connections).").setting).toBe(
      "network.max_connections",
    );
    expect(params("a.org:443 cannot be reached: Connection refused.").detail).toBe("Connection refused");
    expect(params("[::1]:443 cannot be reached: it did not answer within 10 s.").detail).toBe(
      "it did not answer within 10 s",
    );
  });

  it("shows its date unless it is of today", () => {
    const now = new Date("2026-01-02T12:00:00");
    expect(formatStartTime("2026-01-02T03:04:05", now, "en-GB")).toBe("03:04:05");
    expect(formatStartTime("2026-01-01T23:04:05", now, "en-GB")).toBe("1 Jan 23:04:05");
  });
});

describe("allowing a target", () => {
  it("is known from the rules", () => {
    expect(allowsTarget(["allow packages", "allow a.org:443"], "a.org:443")).toBe(true);
    expect(allowsTarget(["deny a.org:443", "allow b.a.org:443"], "a.org:443")).toBe(false);
  });

  it("is undone by removing the rule, or by denying again", () => {
    expect(undoAllowRequest(["allow packages"], "a.org:443")).toEqual({ remove: ["a.org:443"] });
    expect(undoAllowRequest(["deny a.org:443"], "a.org:443")).toEqual({ deny: ["a.org:443"] });
  });
});

describe("totals", () => {
  it("are summed", () => {
    const one = { host: "a.org", port: 443, connections: 3, denied: 1, sentBytes: 10, receivedBytes: 100 };
    expect(sumTotals([one, { ...one, port: 80 }])).toEqual({
      connections: 6,
      denied: 2,
      sentBytes: 20,
      receivedBytes: 200,
    });
    expect(sumTotals([])).toEqual({ connections: 0, denied: 0, sentBytes: 0, receivedBytes: 0 });
  });
});
