/** Example prompts, each with the sandbox and the files it needs. */

import type { Schema } from "@/api/types";
import visitors from "./visitors.csv?raw";

export const EXAMPLE_PROMPTS = ["page", "data", "desktop", "explain"] as const;
export type ExamplePrompt = (typeof EXAMPLE_PROMPTS)[number];

type Kind = Pick<Schema<"KindResponse">, "name" | "screen" | "built" | "image">;

/** Files attached with the example. */
export function examplePromptFiles(example: ExamplePrompt): File[] {
  return example === "data" ? [new File([visitors], "visitors.csv", { type: "text/csv" })] : [];
}

/** Kinds of sandbox for an example: the chosen ones if suitable; null if the server has none. */
export function kindsForExamplePrompt(
  example: ExamplePrompt,
  chosen: readonly string[],
  kinds: readonly Kind[],
): string[] | null {
  // Kinds with only a browser or a phone have a screen, but no text editor.
  const isSuitable = ({ name, screen }: Kind) =>
    example === "desktop" ? name === "linux" : name === "linux" || name === "code" || !screen;
  const suitable = kinds.filter(isSuitable);
  if (suitable.some(({ name }) => chosen.includes(name))) return [...chosen];
  const first = suitable.find(({ built }) => built) ?? suitable[0];
  return first ? [first.name] : null;
}
