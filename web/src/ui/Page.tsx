import { type ReactNode, useEffect } from "react";
import styles from "./pieces.module.css";

interface Props {
  title: string;
  /** One line below the title. */
  about?: ReactNode;
  /** Buttons beside the title. */
  actions?: ReactNode;
  children: ReactNode;
}

/** An ordinary page: a title, what can be done, and below it the content, which scrolls. */
export function Page({ title, about, actions, children }: Props) {
  useTitle(title);
  return (
    <div className={styles.page}>
      <header className={styles.pageHead}>
        <div>
          <h1>{title}</h1>
          {about && <p className={styles.soft}>{about}</p>}
        </div>
        {actions && <div className={styles.actions}>{actions}</div>}
      </header>
      {children}
    </div>
  );
}

/** What the browser's tab says. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · Paddock` : "Paddock";
  }, [title]);
}
