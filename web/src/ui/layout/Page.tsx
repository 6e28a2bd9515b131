import { type ReactNode, useEffect } from "react";
import { create } from "zustand";
import styles from "./layout.module.css";

interface Props {
  title: string;
  /** One line below the title. */
  about?: ReactNode;
  /** Buttons beside the title. */
  actions?: ReactNode;
  children: ReactNode;
}

/** Standard page: title, actions, and scrolling content. */
export function Page({ title, about, actions, children }: Props) {
  usePageTitle(title);
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

/** Title of the browser tab. */
export function usePageTitle(title: string): void {
  useEffect(() => useTitles.setState({ title }), [title]);
}

/** Prefix of the browser tab's title, on every page. */
export function usePageTitlePrefix(prefix: string): void {
  useEffect(() => useTitles.setState({ prefix }), [prefix]);
}
