import { configure } from "@testing-library/react";
import { beforeAll } from "vitest";
import { initLanguage, loadAllTexts } from "@/i18n";

// A busy machine may be slow.
configure({ asyncUtilTimeout: 10_000 });

beforeAll(async () => {
  await initLanguage();
  await loadAllTexts();
});
