"""Settings of chat sessions."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from paddock.config.section import ConfigSection
from paddock.config.units import Bytes, Seconds


class ChatConfig(ConfigSection):
    """Chat sessions with agents."""

    agent: str = "langgraph"
    """Agent of sessions that do not name one: an engine, or an agent program such as `claude-code`."""
    model: str | None = Field(default=None, pattern=r"^[^\s*]{1,200}$")
    """Model of sessions that do not name one; `null` uses the first entry of `llm.models` that is not a pattern, else a
    current model of the first provider."""
    kinds: tuple[str, ...] = ("code",)
    """Sandbox kinds available to sessions that do not list any."""
    approval_time: Seconds | None = Field(default=7 * 86400, ge=1)
    """How long a call waits for approval before it counts as rejected; `null` waits indefinitely."""
    steps: int = Field(default=100, ge=1, le=10_000)
    """Maximum number of model requests per turn."""
    repeats: int = Field(default=5, ge=2, le=100)
    """Maximum number of consecutive identical tool calls; further ones are refused."""
    budget: int | None = Field(default=None, ge=1)
    """Token budget of sessions that do not set one; `null` means unlimited."""
    context: int = Field(default=100_000, ge=2_000)
    """Estimated number of tokens at which the older part of a conversation is summarized."""
    contexts: Mapping[str, int] = {}
    """Values of `context` for individual models, by model name."""
    pictures: int = Field(default=3, ge=0, le=50)
    """Number of most recent images sent to the model; older images are replaced by a note."""
    result_size: int = Field(default=20_000, ge=500)
    """Maximum number of characters of a tool result sent to the model; longer results are saved to a file."""
    call_timeout: Seconds = Field(default=600, ge=1, le=86400)
    """Time limit of a tool call."""
    idle_time: Seconds = Field(default=3600, ge=1)
    """How long the sandboxes of an idle session are kept."""
    sessions: int = Field(default=10_000, ge=1)
    """Maximum number of sessions per tenant."""
    at_once: int = Field(default=200, ge=1)
    """Maximum number of turns running at the same time."""
    file_size: Bytes = Field(default=50 * 2**20, ge=1024)
    """Maximum size of a file saved with a session."""
