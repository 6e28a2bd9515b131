import type { ReactNode } from "react";
import styles from "./Table.module.css";

export interface Column<Row> {
  id: string;
  label: string;
  cell: (row: Row) => ReactNode;
  /** Right-aligned, for numbers. */
  numeric?: boolean;
  /** Hidden on narrow screens. */
  minor?: boolean;
}

interface Props<Row> {
  /** Accessible name of the table. */
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string;
  /** Selected rows, with a checkbox before each. */
  chosen?: {
    ids: ReadonlySet<string>;
    onChange: (ids: Set<string>) => void;
    labelOf: (row: Row) => string;
    all: string;
  };
  /** Actions at the end of each row. */
  actions?: (row: Row) => ReactNode;
}

export function Table<Row>({ label, columns, rows, keyOf, chosen, actions }: Props<Row>) {
  const toggle = (id: string, on: boolean) => {
    const ids = new Set(chosen?.ids);
    if (on) ids.add(id);
    else ids.delete(id);
    chosen?.onChange(ids);
  };
  const classOf = (column: Column<Row>) =>
    [column.numeric && styles.numeric, column.minor && styles.minor].filter(Boolean).join(" ") || undefined;
  return (
    // biome-ignore lint/a11y/useSemanticElements: a landmark per table would be too many.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
    <div className={styles.frame} role="group" aria-label={label} tabIndex={0}>
      <table className={styles.table}>
        <thead>
          <tr>
            {chosen && (
              <th className={styles.narrow}>
                <input
                  type="checkbox"
                  aria-label={chosen.all}
                  checked={rows.length > 0 && rows.every((row) => chosen.ids.has(keyOf(row)))}
                  onChange={(event) => chosen.onChange(new Set(event.target.checked ? rows.map(keyOf) : []))}
                />
              </th>
            )}
            {columns.map((column) => (
              <th key={column.id} scope="col" className={classOf(column)}>
                {column.label}
              </th>
            ))}
            {actions && <td className={styles.narrow} />}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => {
            const id = keyOf(row);
            return (
              <tr key={id}>
                {chosen && (
                  <td className={styles.narrow}>
                    <input
                      type="checkbox"
                      aria-label={chosen.labelOf(row)}
                      checked={chosen.ids.has(id)}
                      onChange={(event) => toggle(id, event.target.checked)}
                    />
                  </td>
                )}
                {columns.map((column) => (
                  <td key={column.id} className={classOf(column)}>
                    {column.cell(row)}
                  </td>
                ))}
                {actions && <td className={styles.narrow}>{actions(row)}</td>}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
