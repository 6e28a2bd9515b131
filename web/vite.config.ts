/// <reference types="vitest/config" />
import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const server = process.env.PADDOCK_SERVER ?? "http://127.0.0.1:8420";

export default defineConfig({
  plugins: [react()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    outDir: "../src/paddock/console/static",
    emptyOutDir: true,
    target: "es2022",
    chunkSizeWarningLimit: 1200,
    // Data addresses would be one more thing that the content security policy has to allow.
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        // A file for every icon and every room's words would be a request each, which a slow network makes one feel.
        codeSplitting: {
          groups: [
            { name: "icons", test: /node_modules[\\/]lucide-react/ },
            { name: "chinese", test: /i18n[\\/]zh[\\/]/ },
          ],
        },
      },
    },
  },
  server: {
    // For work on the console itself: `npm run dev` beside a running `paddock serve`.
    proxy: Object.fromEntries(["/v1", "/readyz", "/version"].map((path) => [path, { target: server, ws: true }])),
  },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"], setupFiles: ["src/test/setup.ts"] },
});
