/** Sends one model request. A signed-in browser has no model scope, so a single-use key is created. */

import { api, fetchRaw } from "@/api/client";
import type { Schema } from "@/api/types";
import { MODEL_TEST_CLIENT } from "@/archive/model-test-client";

export interface ModelTestResult {
  text: string;
  seconds: number;
  tokens: number | null;
  /** Id of the exchange in the archive. */
  exchange: string | null;
  /** Script that answered instead of a model. */
  script: string | null;
}

interface Completion {
  choices?: { message?: { content?: string | null; reasoning_content?: string | null } }[];
  usage?: { total_tokens?: number };
}

const KEY_LIFETIME_MS = 5 * 60_000;

export async function askModel(model: string, question: string, signal: AbortSignal): Promise<ModelTestResult> {
  const key = await api.post<Schema<"CreateKeyResponse">>(
    "/v1/keys",
    {
      name: "console: test of a model",
      scopes: ["llm:use"],
      budget: { requests: 1 },
      expiresAt: new Date(Date.now() + KEY_LIFETIME_MS).toISOString(),
    },
    { signal },
  );
  const startedAt = performance.now();
  try {
    const response = await fetchRaw("POST", "/v1/chat/completions", {
      body: { model, messages: [{ role: "user", content: question }] },
      headers: { Authorization: `Bearer ${key.secret}`, "X-Paddock-Client": MODEL_TEST_CLIENT },
      signal,
    });
    const completion = (await response.json()) as Completion;
    const message = completion.choices?.[0]?.message;
    return {
      text: message?.content || message?.reasoning_content || "",
      seconds: (performance.now() - startedAt) / 1000,
      tokens: completion.usage?.total_tokens ?? null,
      exchange: response.headers.get("x-paddock-exchange"),
      script: response.headers.get("x-paddock-script"),
    };
  } finally {
    await api.delete(`/v1/keys/${encodeURIComponent(key.id)}`).catch(() => {});
  }
}
