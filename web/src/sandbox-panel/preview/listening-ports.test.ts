import { describe, expect, it } from "vitest";
import {
  defaultPort,
  frameSandbox,
  fullAddress,
  newPorts,
  type Preview,
  parsePort,
  portChoices,
} from "./listening-ports";

const preview = (port: number): Preview => ({
  port,
  public: false,
  address: "/preview/a/",
  link: "/preview/a.b/",
  createdAt: "2026-01-01T00:00:00Z",
  expiresAt: "2026-01-01T01:00:00Z",
});

describe("listening ports", () => {
  it("are new if they were not there before, and if there is a before", () => {
    expect(newPorts(null, [3000])).toEqual([]);
    expect(newPorts([], [3000])).toEqual([3000]);
    expect(newPorts([22, 3000], [22, 3000, 8000])).toEqual([8000]);
    expect(newPorts([3000], [])).toEqual([]);
  });

  it("can be chosen together with shared and chosen ones", () => {
    expect(portChoices([3000], [preview(22)], 80)).toEqual([
      { port: 22, listening: false },
      { port: 80, listening: false },
      { port: 3000, listening: true },
    ]);
    expect(portChoices([3000], [preview(3000)], 3000)).toHaveLength(1);
  });

  it("have a default: shared and listening first", () => {
    expect(defaultPort([3000, 8000], [preview(22), preview(8000)])).toBe(8000);
    expect(defaultPort([3000], [preview(22)])).toBe(22);
    expect(defaultPort([3000], [])).toBe(3000);
    expect(defaultPort([], [])).toBeNull();
  });

  it("are read from text", () => {
    expect([" 80", "65535", "0", "65536", "8a", "", "-1"].map(parsePort)).toEqual([
      80,
      65535,
      null,
      null,
      null,
      null,
      null,
    ]);
  });
});

describe("a preview", () => {
  it("has an address relative to the page", () => {
    const page = "https://paddock.example/sandboxes/sb-1/preview";
    expect(fullAddress("/preview/a.b/", page)).toBe("https://paddock.example/preview/a.b/");
    expect(fullAddress("//3000-sb-1.preview.example/", page)).toBe("https://3000-sb-1.preview.example/");
  });

  it("has an origin only if it has a name of its own", () => {
    expect(frameSandbox("/preview/a.b/")).not.toContain("allow-same-origin");
    expect(frameSandbox("//3000-sb-1.preview.example/")).toContain("allow-same-origin");
  });
});
