/** One question to a model. A login cannot ask models by itself, so a key is made for it that works once. */

import { api, fetchRaw } from "@/api/client";
import type { Schema } from "@/api/types";

export interface Answer {
  text: string;
  seconds: number;
  tokens: number | null;
  /** Where it is kept in the archive. */
  exchange: string | null;
  /** The script that answered instead of a model. */
  script: string | null;
}

interface Completion {
  choices?: { message?: { content?: string | null; reasoning_content?: string | null } }[];
  usage?: { total_tokens?: number };
}

const LIFE = 5 * 60_000;

export async function ask(model: string, question: string, signal: AbortSignal): Promise<Answer> {
  const key = await api.post<Schema<"NewKey">>(
    "/v1/keys",
    {
      name: "console: test of a model",
      scopes: ["llm:use"],
      budget: { requests: 1 },
      expiresAt: new Date(Date.now() + LIFE).toISOString(),
    },
    { signal },
  );
  const begun = performance.now();
  try {
    const response = await fetchRaw("POST", "/v1/chat/completions", {
      body: { model, messages: [{ role: "user", content: question }] },
      headers: { Authorization: `Bearer ${key.secret}` },
      signal,
    });
    const said = (await response.json()) as Completion;
    const message = said.choices?.[0]?.message;
    return {
      text: message?.content || message?.reasoning_content || "",
      seconds: (performance.now() - begun) / 1000,
      tokens: said.usage?.total_tokens ?? null,
      exchange: response.headers.get("x-paddock-exchange"),
      script: response.headers.get("x-paddock-script"),
    };
  } finally {
    await api.delete(`/v1/keys/${encodeURIComponent(key.id)}`).catch(() => {});
  }
}
