import { configure } from "@testing-library/react";
import { beforeAll } from "vitest";
import { startLanguage } from "@/i18n";

// A busy machine takes its time.
configure({ asyncUtilTimeout: 10_000 });

beforeAll(startLanguage);
