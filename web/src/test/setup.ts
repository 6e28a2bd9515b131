import { configure } from "@testing-library/react";
import { beforeAll } from "vitest";
import { loadAllWords, startLanguage } from "@/i18n";

// A busy machine takes its time.
configure({ asyncUtilTimeout: 10_000 });

beforeAll(async () => {
  await startLanguage();
  await loadAllWords();
});
