/** Libraries of the console and their licences. */

export const LICENCES: Record<string, string> = {
  "@assistant-ui/react": "MIT",
  "@base-ui/react": "MIT",
  "@novnc/novnc": "MPL-2.0",
  "@tanstack/react-query": "MIT",
  "@tanstack/react-virtual": "MIT",
  "@xterm/addon-fit": "MIT",
  "@xterm/addon-search": "MIT",
  "@xterm/addon-webgl": "MIT",
  "@xterm/xterm": "MIT",
  i18next: "MIT",
  "lucide-react": "ISC",
  react: "MIT",
  "react-dom": "MIT",
  "react-i18next": "MIT",
  "react-markdown": "MIT",
  "remark-gfm": "MIT",
  uplot: "MIT",
  wouter: "Unlicense",
  yaml: "ISC",
  zustand: "MIT",
};
