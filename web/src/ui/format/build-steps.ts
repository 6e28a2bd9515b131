/** Values of a text with "step n of m" of an image build. */
export interface BuildSteps {
  number: number;
  total: number;
}

/** The steps of an image build; null while they are unknown. */
export function buildSteps(number: unknown, count: unknown): BuildSteps | null {
  return typeof number === "number" && typeof count === "number" && number > 0 && count >= number
    ? { number, total: count }
    : null;
}
