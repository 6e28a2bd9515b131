"""Registry of all wire formats, by name."""

from __future__ import annotations

from paddock.llm.formats.anthropic import AnthropicFormat
from paddock.llm.formats.base import WireFormat
from paddock.llm.formats.gemini import GeminiFormat
from paddock.llm.formats.openai_chat import OpenAIChatFormat
from paddock.llm.formats.openai_responses import OpenAIResponsesFormat

FORMATS: dict[str, WireFormat] = {
    each.name: each for each in (OpenAIChatFormat(), OpenAIResponsesFormat(), AnthropicFormat(), GeminiFormat())
}
