import { type ComponentType, cloneElement, createContext, type ReactElement, useContext } from "react";

export interface TooltipProps {
  text: string;
  children: ReactElement<Record<string, unknown>>;
}

/** Tooltip implementation. The good one is large, so pages that must load quickly omit it. */
export const TooltipImplementation = createContext<ComponentType<TooltipProps> | null>(null);

/** Text shown on hover or focus. It must not be needed to understand the page. */
export function Tooltip({ text, children }: TooltipProps) {
  const Look = useContext(TooltipImplementation);
  return Look ? <Look text={text}>{children}</Look> : cloneElement(children, { title: text });
}
