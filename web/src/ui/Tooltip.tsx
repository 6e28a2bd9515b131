import { type ComponentType, cloneElement, createContext, type ReactElement, useContext } from "react";

export interface TooltipProps {
  text: string;
  children: ReactElement<Record<string, unknown>>;
}

/** How tooltips look. What draws them well is large, so that pages which must come quickly do without. */
export const TooltipLook = createContext<ComponentType<TooltipProps> | null>(null);

/** Words that appear beside something that is pointed at or has the focus. They must not be needed to understand it. */
export function Tooltip({ text, children }: TooltipProps) {
  const Look = useContext(TooltipLook);
  return Look ? <Look text={text}>{children}</Look> : cloneElement(children, { title: text });
}
