"""One way to say what every model API says: the form that translations pass through.

A request or answer in one wire format is read into these, and written from them in another. They hold what the
formats share and what one of them cannot do without; `extra` keeps what only the same format will want back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Self, TypeAlias


class Signature(str):
    """A provider's seal on a thought or call, which only the family of formats that made it takes back.

    It compares and prints as the text that the provider sent.
    """

    __slots__ = ("maker",)
    maker: str

    def __new__(cls, value: str, maker: str) -> Self:
        seal = super().__new__(cls, value)
        seal.maker = maker
        return seal

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.maker


class Role(StrEnum):
    SYSTEM = "system"
    """Also what other formats call `developer`; may stand anywhere in a conversation."""
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(slots=True)
class Text:
    text: str
    cached: bool = False
    """Whether a prompt-caching mark follows it."""


@dataclass(slots=True)
class Media:
    """A picture, document or sound, inline or by address."""

    kind: Literal["image", "document", "audio"]
    media_type: str | None = None
    data: str | None = None
    """Base64."""
    url: str | None = None
    name: str | None = None
    cached: bool = False
    detail: str | None = None
    """How closely a picture is looked at: `low`, `high`, `auto`, where the format has a word for it."""


@dataclass(slots=True)
class Thinking:
    """What the model thought. `signature` is the provider's seal, without which it takes nothing back.

    Readers of formats give a `Signature`, which says whose it is; plain text counts as anybody's.
    """

    text: str = ""
    signature: str | None = None
    redacted: str | None = None
    """Sealed thought that only the provider can read; a `Signature` too."""


@dataclass(slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it."""
    signature: str | None = None
    cached: bool = False


@dataclass(slots=True)
class ToolResult:
    call_id: str
    content: list[Text | Media]
    name: str | None = None
    """The tool, for formats that go by name."""
    is_error: bool = False
    cached: bool = False


@dataclass(slots=True)
class Refusal:
    text: str


Part: TypeAlias = Text | Media | Thinking | ToolCall | ToolResult | Refusal


@dataclass(slots=True)
class Message:
    role: Role
    parts: list[Part]


@dataclass(slots=True)
class Tool:
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON Schema of the arguments."""
    strict: bool | None = None
    cached: bool = False


class ToolChoice(StrEnum):
    AUTO = "auto"
    NONE = "none"
    ANY = "any"
    NAMED = "named"


class Effort(StrEnum):
    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


@dataclass(slots=True)
class Request:
    model: str
    messages: list[Message]
    stream: bool = False
    tools: list[Tool] = field(default_factory=list)
    tool_choice: ToolChoice | None = None
    tool_name: str | None = None
    parallel_tools: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: list[str] = field(default_factory=list)
    seed: int | None = None
    thinking_budget: int | None = None
    effort: Effort | None = None
    json_schema: dict[str, Any] | None = None
    json_mode: bool = False
    user: str | None = None
    exchange: str | None = None
    """The id of the exchange this request belongs to."""
    extra: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What was dropped on the way, because the other side has no word for it and can do without."""


class Finish(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOLS = "tools"
    REFUSAL = "refusal"
    FILTERED = "filtered"
    PAUSED = "paused"
    """The provider wants the turn to be continued."""


@dataclass(slots=True)
class Usage:
    """Tokens. `input` counts all of the prompt, what came from or went to a cache included."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    """How many of `output` were thought."""


@dataclass(slots=True)
class Answer:
    """A whole answer."""

    id: str
    model: str
    parts: list[Part]
    finish: Finish
    stop_sequence: str | None = None
    usage: Usage | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Failure:
    """An error, as it is told to a client in its own format."""

    status: int
    message: str
    kind: str = "api_error"
    """Anthropic's word for it: `invalid_request_error`, `authentication_error`, `rate_limit_error`, …"""
    code: str | None = None
    wait: float | None = None
    """Seconds after which asking again may help, for formats that say so in the body."""


@dataclass(slots=True)
class Started:
    """The first event of a stream."""

    id: str
    model: str
    usage: Usage | None = None


@dataclass(slots=True)
class PartStarted:
    """A part begins; its text, arguments or signature follow in pieces. Parts do not overlap unless they are calls."""

    index: int
    part: Part


@dataclass(slots=True)
class Delta:
    """More of a part: of its text, or of a call's arguments."""

    index: int
    text: str


@dataclass(slots=True)
class Signed:
    """The signature of a thought or call, which comes after its text."""

    index: int
    signature: str


@dataclass(slots=True)
class PartEnded:
    index: int


@dataclass(slots=True)
class Finished:
    """The last event of a stream that ended properly."""

    finish: Finish
    usage: Usage | None = None
    stop_sequence: str | None = None


@dataclass(slots=True)
class Failed:
    """The last event of a stream that did not."""

    failure: Failure


Event: TypeAlias = Started | PartStarted | Delta | Signed | PartEnded | Finished | Failed
