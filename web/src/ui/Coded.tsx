/** A sentence in which what stands between backticks is code. */
export function Coded({ text }: { text: string }) {
  return text.split("`").map((piece, index) => (index % 2 ? <code key={index}>{piece}</code> : piece));
}
