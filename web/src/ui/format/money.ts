/** "$0.0123"; small amounts keep two significant digits. */
export function formatMoney(cost: number, language: string): string {
  const digits = cost === 0 || cost >= 1 ? 2 : Math.min(8, Math.max(2, 1 - Math.floor(Math.log10(cost))));
  return new Intl.NumberFormat(language, {
    style: "currency",
    currency: "USD",
    currencyDisplay: "narrowSymbol",
    minimumFractionDigits: 2,
    maximumFractionDigits: digits,
  }).format(cost);
}
