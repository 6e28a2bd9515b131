"""The neutral form of requests and answers, which all translations between formats pass through.

A request or answer is read from one wire format into these classes, and written from them in another. They hold what
the formats share and what one of them cannot do without; `extra` keeps values that only the same format can use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Self, TypeAlias


class ProviderSignature(str):
    """A provider's signature of a thought or call, accepted only by the family of formats that made it.

    Compares and prints as the text that the provider sent.
    """

    __slots__ = ("maker",)
    maker: str

    def __new__(cls, value: str, maker: str) -> Self:
        signature = super().__new__(cls, value)
        signature.maker = maker
        return signature

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.maker


class MessageRole(StrEnum):
    SYSTEM = "system"
    """Also the role `developer` of some formats; may occur anywhere in a conversation."""
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(slots=True)
class ModelText:
    text: str
    cached: bool = False
    """Whether a prompt-caching mark follows."""


@dataclass(slots=True)
class ModelMedia:
    """An image, document or audio, inline or by URL."""

    kind: Literal["image", "document", "audio"]
    media_type: str | None = None
    data: str | None = None
    """Base64."""
    url: str | None = None
    name: str | None = None
    cached: bool = False
    detail: str | None = None
    """Level of detail for an image: `low`, `high` or `auto`, if the format supports it."""


@dataclass(slots=True)
class ModelThinking:
    """A thought of the model. `signature` is the provider's; without it the thought cannot be sent back.

    Format readers set a `ProviderSignature`, which names its format family; plain text counts as any family's.
    """

    text: str = ""
    signature: str | None = None
    redacted: str | None = None
    """Encrypted thought that only the provider can read; also a `ProviderSignature`."""


@dataclass(slots=True)
class ModelToolCall:
    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it."""
    signature: str | None = None
    cached: bool = False


@dataclass(slots=True)
class ModelToolResult:
    call_id: str
    content: list[ModelText | ModelMedia]
    name: str | None = None
    """The tool's name, for formats that match results by name."""
    is_error: bool = False
    cached: bool = False


@dataclass(slots=True)
class ModelRefusal:
    text: str


MessagePart: TypeAlias = ModelText | ModelMedia | ModelThinking | ModelToolCall | ModelToolResult | ModelRefusal


@dataclass(slots=True)
class ModelMessage:
    role: MessageRole
    parts: list[MessagePart]


@dataclass(slots=True)
class ToolDefinition:
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


class ReasoningEffort(StrEnum):
    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


@dataclass(slots=True)
class ModelRequest:
    model: str
    messages: list[ModelMessage]
    stream: bool = False
    tools: list[ToolDefinition] = field(default_factory=list)
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
    effort: ReasoningEffort | None = None
    json_schema: dict[str, Any] | None = None
    json_mode: bool = False
    user: str | None = None
    exchange: str | None = None
    """The id of the exchange this request belongs to."""
    extra: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Parts dropped in translation, because the target format cannot express them and does not need them."""
    hosted_tools: list[str] = field(default_factory=list)
    """Types of tools that the client's provider would run itself; they are not in `tools`."""


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOLS = "tools"
    REFUSAL = "refusal"
    FILTERED = "filtered"
    PAUSED = "paused"
    """The provider asks for the turn to be continued."""


@dataclass(slots=True)
class TokenUsage:
    """Token counts. `input` is the whole prompt, including tokens read from or written to a cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    """Part of `output` that was reasoning."""


@dataclass(slots=True)
class ModelAnswer:
    """A complete answer of a model."""

    id: str
    model: str
    parts: list[MessagePart]
    finish: FinishReason
    stop_sequence: str | None = None
    usage: TokenUsage | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ModelFailure:
    """An error to report to a client in its own format."""

    status: int
    message: str
    kind: str = "api_error"
    """Anthropic's error type: `invalid_request_error`, `authentication_error`, `rate_limit_error`, …"""
    code: str | None = None
    wait: float | None = None
    """Seconds after which a retry may succeed, for formats that report it in the body."""


@dataclass(slots=True)
class AnswerStreamStarted:
    """The first event of a stream."""

    id: str
    model: str
    usage: TokenUsage | None = None


@dataclass(slots=True)
class AnswerPartStarted:
    """A part begins; its text, arguments or signature follow in pieces. Only tool calls may overlap."""

    index: int
    part: MessagePart


@dataclass(slots=True)
class AnswerPartDelta:
    """More text of a part, or more of a call's arguments."""

    index: int
    text: str


@dataclass(slots=True)
class AnswerPartSigned:
    """The signature of a thought or call, sent after its text."""

    index: int
    signature: str


@dataclass(slots=True)
class AnswerPartEnded:
    index: int


@dataclass(slots=True)
class AnswerStreamFinished:
    """The last event of a complete stream."""

    finish: FinishReason
    usage: TokenUsage | None = None
    stop_sequence: str | None = None


@dataclass(slots=True)
class AnswerStreamFailed:
    """The last event of a stream that failed."""

    failure: ModelFailure


StreamEvent: TypeAlias = (
    AnswerStreamStarted
    | AnswerPartStarted
    | AnswerPartDelta
    | AnswerPartSigned
    | AnswerPartEnded
    | AnswerStreamFinished
    | AnswerStreamFailed
)
