"""Registry of all wire formats, by name."""

from __future__ import annotations

from paddock.llm.formats.anthropic import Anthropic
from paddock.llm.formats.base import WireFormat
from paddock.llm.formats.gemini import Gemini
from paddock.llm.formats.openai_chat import OpenAIChat
from paddock.llm.formats.openai_responses import OpenAIResponses

FORMATS: dict[str, WireFormat] = {each.name: each for each in (OpenAIChat(), OpenAIResponses(), Anthropic(), Gemini())}
