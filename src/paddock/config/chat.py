"""The settings of chat sessions."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from paddock.config.base import Section
from paddock.config.units import Bytes, Seconds


class ChatConfig(Section):
    """Chat with agents."""

    agent: str = "langgraph"
    """Who works in a session that names nobody: an engine, or an agent program such as `claude-code`."""
    model: str | None = Field(default=None, pattern=r"^[^\s*]{1,200}$")
    """The model of sessions that name none; otherwise the first of `llm.models` that is no pattern, or a current model
    of the first provider."""
    kinds: tuple[str, ...] = ("code",)
    """Kinds of sandbox that a session may use if it does not say which."""
    approval_time: Seconds | None = Field(default=7 * 86400, ge=1)
    """How long a person has to decide; after that a call counts as refused."""
    steps: int = Field(default=100, ge=1, le=10_000)
    """How often the model may be asked in one turn."""
    repeats: int = Field(default=5, ge=2, le=100)
    """How often the very same call may be made in a row before it is refused."""
    budget: int | None = Field(default=None, ge=1)
    """Tokens of a session that sets itself no bound."""
    context: int = Field(default=100_000, ge=2_000)
    """Tokens of a conversation, by estimate, beyond which the older part is summed up."""
    contexts: Mapping[str, int] = {}
    """The same for single models, by name."""
    pictures: int = Field(default=3, ge=0, le=50)
    """How many of the newest pictures the model is shown; older ones are replaced by a note."""
    result_size: int = Field(default=20_000, ge=500)
    """Characters of a tool's result that the model is shown; the rest is kept as a file."""
    call_timeout: Seconds = Field(default=600, ge=1, le=86400)
    """How long a tool may take."""
    idle_time: Seconds = Field(default=3600, ge=1)
    """How long the sandboxes of a session are kept when nothing happens in it."""
    sessions: int = Field(default=10_000, ge=1)
    """Most sessions of one tenant."""
    at_once: int = Field(default=200, ge=1)
    """Most turns under way at a time."""
    file_size: Bytes = Field(default=50 * 2**20, ge=1024)
    """Largest file that a session keeps."""
