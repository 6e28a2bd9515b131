/** Examples of what a new chat can be asked, each with the sandbox and the files that it needs. */

import type { Schema } from "@/api/types";
import visitors from "./visitors.csv?raw";

export const EXAMPLES = ["page", "data", "desktop", "explain"] as const;
export type Example = (typeof EXAMPLES)[number];

type Kind = Pick<Schema<"KindItem">, "name" | "screen" | "built" | "image">;

/** Files that go with the example's text. */
export function filesOf(example: Example): File[] {
  return example === "data" ? [new File([visitors], "visitors.csv", { type: "text/csv" })] : [];
}

/** The kinds of sandbox to use for an example: those chosen already if they will do; null if the server has none. */
export function kindsFor(example: Example, chosen: readonly string[], kinds: readonly Kind[]): string[] | null {
  // A browser alone or a phone has a screen too, but no text editor.
  const fits = ({ name, screen }: Kind) =>
    example === "desktop" ? name === "linux" : name === "linux" || name === "code" || !screen;
  const fitting = kinds.filter(fits);
  if (fitting.some(({ name }) => chosen.includes(name))) return [...chosen];
  const first = fitting.find(({ built }) => built) ?? fitting[0];
  return first ? [first.name] : null;
}
