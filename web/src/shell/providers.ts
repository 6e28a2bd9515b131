/** The few lines of `paddock.yaml` that connect a model. */

export interface Sample {
  id: string;
  label: string;
  /** The variable of the environment that has its key. */
  variable: string;
  lines: string;
}

function sample(id: string, label: string, variable: string, settings: string[], model: string): Sample {
  const inner = [...settings, `key: \${${variable}}`].map((line) => `      ${line}`);
  const lines = ["llm:", "  providers:", `    ${id}:`, ...inner, "  models:", `    ${model}: ${id}/${model}`];
  return { id, label, variable, lines: `${lines.join("\n")}\n` };
}

export const SAMPLES: Sample[] = [
  sample("anthropic", "Anthropic", "ANTHROPIC_API_KEY", ["kind: anthropic"], "claude-sonnet-4-5"),
  sample("openai", "OpenAI", "OPENAI_API_KEY", ["kind: openai", "api: both"], "gpt-5"),
  sample("gemini", "Google Gemini", "GEMINI_API_KEY", ["kind: gemini"], "gemini-2.5-pro"),
  sample(
    "dashscope",
    "DashScope (Qwen)",
    "DASHSCOPE_API_KEY",
    ["kind: openai", "base_url: https://dashscope.aliyuncs.com/compatible-mode/v1", "thinking: enable_thinking"],
    "qwen3-max",
  ),
  sample(
    "glm",
    "Zhipu (GLM)",
    "ZHIPUAI_API_KEY",
    ["kind: openai", "base_url: https://open.bigmodel.cn/api/paas/v4", "thinking: type"],
    "glm-4.6",
  ),
  sample(
    "local",
    "vLLM, Ollama …",
    "LOCAL_KEY:-none",
    ["kind: openai", "base_url: http://127.0.0.1:8000/v1"],
    "my-model",
  ),
];
