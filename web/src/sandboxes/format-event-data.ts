/** Event data in one line: `cause: click_mouse · size: 3`. Fields without a value are left out. */
export function formatEventData(data: Record<string, unknown>): string {
  return Object.entries(data)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => `${name.replaceAll("_", " ")}: ${formatEventValue(value)}`)
    .join(" · ");
}

function formatEventValue(value: unknown): string {
  if (Array.isArray(value) && value.every((each) => typeof each !== "object")) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
