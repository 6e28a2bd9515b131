import { describe, expect, it } from "vitest";
import { formatMoney } from "./money";

describe("money", () => {
  it("shows small amounts as they are", () => {
    expect([0, 0.00042, 0.0567, 3.456].map((cost) => formatMoney(cost, "en"))).toEqual([
      "$0.00",
      "$0.00042",
      "$0.057",
      "$3.46",
    ]);
  });
});
