/** The published noVNC types name the file of an older version. */
declare module "@novnc/novnc" {
  export { default } from "@novnc/novnc/lib/rfb";
}
