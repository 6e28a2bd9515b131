/** The types that there are for noVNC name the file of an older version. */
declare module "@novnc/novnc" {
  export { default } from "@novnc/novnc/lib/rfb";
}
