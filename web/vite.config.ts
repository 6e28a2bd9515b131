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
        // Many small files are many requests, which one feels on a slow network: what the first page needs is two.
        codeSplitting: {
          groups: [
            { name: "libraries", test: /node_modules/, tags: ["$initial"], priority: 2 },
            { name: "first", tags: ["$initial"], priority: 1 },
            { name: "icons", test: /node_modules[\\/]lucide-react/, minShareCount: 3 },
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
  test: {
    isolate: false,
    testTimeout: 20_000,
    environment: "happy-dom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/test/setup.ts"],
  },
});
