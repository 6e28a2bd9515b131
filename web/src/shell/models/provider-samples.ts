/** Sample lines of `paddock.yaml` that connect a model. */

export interface ProviderSample {
  id: string;
  label: string;
  /** Environment variable of its key. */
  variable: string;
  lines: string;
}

function providerSample(
  id: string,
  label: string,
  variable: string,
  settings: string[],
  model: string,
): ProviderSample {
  const inner = [...settings, `key: \${${variable}}`].map((line) => `      ${line}`);
  const lines = ["llm:", "  providers:", `    ${id}:`, ...inner, "  models:", `    ${model}: ${id}/${model}`];
  return { id, label, variable, lines: `${lines.join("\n")}\n` };
}

export const PROVIDER_SAMPLES: ProviderSample[] = [
  providerSample("anthropic", "Anthropic", "ANTHROPIC_API_KEY", ["kind: anthropic"], "claude-sonnet-4-5"),
  providerSample("openai", "OpenAI", "OPENAI_API_KEY", ["kind: openai", "api: both"], "gpt-5"),
  providerSample("gemini", "Google Gemini", "GEMINI_API_KEY", ["kind: gemini"], "gemini-2.5-pro"),
  providerSample(
    "dashscope",
    "DashScope (Qwen)",
    "DASHSCOPE_API_KEY",
    ["kind: openai", "base_url: https://dashscope.aliyuncs.com/compatible-mode/v1", "thinking: enable_thinking"],
    "qwen3-max",
  ),
  providerSample(
    "glm",
    "Zhipu (GLM)",
    "ZHIPUAI_API_KEY",
    ["kind: openai", "base_url: https://open.bigmodel.cn/api/paas/v4", "thinking: type"],
    "glm-4.6",
  ),
  providerSample(
    "local",
    "vLLM, Ollama …",
    "LOCAL_KEY:-none",
    ["kind: openai", "base_url: http://127.0.0.1:8000/v1"],
    "my-model",
  ),
];

/** Command that connects the provider by its key alone; null for one that needs settings. */
export function providerCommand({ id, variable }: ProviderSample): string | null {
  return id === "local" ? null : `${variable}=… paddock serve`;
}
