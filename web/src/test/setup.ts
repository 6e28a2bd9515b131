import { beforeAll } from "vitest";
import { startLanguage } from "@/i18n";

beforeAll(startLanguage);
