/** Example prompts, each with the sandbox and the files it needs. */

import type { Schema } from "@/api/types";
import visitors from "./visitors.csv?raw";

export const EXAMPLE_PROMPTS = ["page", "data", "desktop", "explain"] as const;
export type ExamplePrompt = (typeof EXAMPLE_PROMPTS)[number];

type Kind = Pick<Schema<"KindResponse">, "name" | "screen" | "built" | "image">;

/** Files attached with the example. */
export function exampleFiles(example: ExamplePrompt): File[] {
  return example === "data" ? [new File([visitors], "visitors.csv", { type: "text/csv" })] : [];
}

/** Kinds of sandbox for an example: the chosen ones if suitable; null if the server has none. */
export function exampleKinds(
  example: ExamplePrompt,
  chosen: readonly string[],
  kinds: readonly Kind[],
): string[] | null {
  // Kinds with only a browser or a phone have a screen, but no text editor.
  const fits = ({ name, screen }: Kind) =>
    example === "desktop" ? name === "linux" : name === "linux" || name === "code" || !screen;
  const fitting = kinds.filter(fits);
  if (fitting.some(({ name }) => chosen.includes(name))) return [...chosen];
  const first = fitting.find(({ built }) => built) ?? fitting[0];
  return first ? [first.name] : null;
}
