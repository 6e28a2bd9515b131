/** Event data in one line: `cause: click_mouse · size: 3`. Fields without a value are left out. */
export function eventText(data: Record<string, unknown>): string {
  return Object.entries(data)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => `${name.replaceAll("_", " ")}: ${valueText(value)}`)
    .join(" · ");
}

function valueText(value: unknown): string {
  if (Array.isArray(value) && value.every((each) => typeof each !== "object")) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
