import "./ui/tokens.css";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { initLanguage } from "./i18n";
import { startAppearance } from "./shell/account/appearance";

startAppearance();
await initLanguage();
const root = document.getElementById("root");
if (root) createRoot(root).render(<App />);
