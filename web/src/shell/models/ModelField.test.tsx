import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import "@/i18n";
import { ModelField } from "./ModelField";

afterEach(cleanup);

async function typeName(patterns: string[], name: string) {
  const change = vi.fn();
  render(<ModelField value="" models={[]} patterns={patterns} onChange={change} />);
  await userEvent.type(screen.getByRole("textbox", { name: "Model" }), name);
  return change;
}

it("is chosen among the models, and never a pattern", () => {
  const models = ["gpt-5", "gpt-5-mini"].map((name) => ({ name, provider: "openai", kind: "openai", script: false }));
  render(<ModelField value="gpt-5" models={models} patterns={["gpt-*", "o3*"]} onChange={() => undefined} />);
  const options = screen.getAllByRole<HTMLOptionElement>("option").map(({ value }) => value);
  expect(options.slice(0, 2)).toEqual(["gpt-5", "gpt-5-mini"]);
  expect(options.filter((value) => value.includes("*"))).toEqual([]);
});

describe("a model name to type", () => {
  it("is any name of the provider if the pattern is *", async () => {
    render(<ModelField value="" models={[]} patterns={["*"]} onChange={() => undefined} />);
    expect(screen.getByText("Enter the name of any model of the provider")).toBeTruthy();
    expect(document.body.textContent).not.toContain("*");
    cleanup();
    expect(await typeName(["*"], "acme-large")).toHaveBeenLastCalledWith("acme-large");
    cleanup();
    await typeName(["*"], "gpt-*");
    expect(screen.getByText("A model name has no spaces and no asterisks.")).toBeTruthy();
  });

  it("matches one of the patterns otherwise", async () => {
    await typeName(["gpt-*", "o3*"], "claude");
    expect(screen.getByText(/Enter one that matches gpt-\*, o3\*/)).toBeTruthy();
  });
});
