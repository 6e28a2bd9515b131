import { type ReactNode, useEffect } from "react";
import { create } from "zustand";
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

const useTitles = create<{ title: string; prefix: string }>(() => ({ title: "", prefix: "" }));

useTitles.subscribe(({ title, prefix }) => {
  document.title = [prefix, title, "Paddock"].filter(Boolean).join(" · ");
});

/** What the browser's tab says. */
export function useTitle(title: string): void {
  useEffect(() => useTitles.setState({ title }), [title]);
}

/** What the browser's tab says before the title of any page. */
export function useTitlePrefix(prefix: string): void {
  useEffect(() => useTitles.setState({ prefix }), [prefix]);
}
