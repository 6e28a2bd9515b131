import { expect, it } from "vitest";
import { dependencies } from "../../package.json";
import { LICENCES } from "./licences";

const packages = import.meta.glob<{ name: string; license: string }>(
  ["../../node_modules/*/package.json", "../../node_modules/@*/*/package.json"],
  { import: "default" },
);

it("lists the licence of every package as its package.json states", async () => {
  expect(Object.keys(LICENCES).sort()).toEqual(Object.keys(dependencies).sort());
  for (const [name, licence] of Object.entries(LICENCES)) {
    const manifest = await packages[`../../node_modules/${name}/package.json`]?.();
    expect(manifest?.license, name).toBe(licence);
  }
});
