"""Request and response bodies of chat sessions, and pages of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Header, Query, Response
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from paddock.agents.json_schema_validation import MAX_DEPTH, is_nested_at_most
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import describe_validation_errors
from paddock.api.http.event_log_responses import encode_non_json_value
from paddock.api.http.visibility_change import VisibilityField
from paddock.config.network_policy import NetworkRules
from paddock.errors import InvalidInput
from paddock.model.sessions import LARGEST_MESSAGE, Approval, ApprovalDecision, Policy, Session, SessionMessage
from paddock.store.chat_sessions.session_store import MessageHit

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
MAX_PARTS = 100
MAX_DECISIONS = 200
MAX_PAGE = 1000
_BATCH_SIZE = 500
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
SessionPageNumber = Annotated[int, Query(ge=1, le=MAX_PAGE)]
BeforeCursor = Annotated[str | None, Query(min_length=1, max_length=200, description="`next` of an earlier page.")]


class SessionSettingsRequest(RequestBody):
    """Settings of a session; omitted settings have the server's defaults."""

    title: str | None = Field(default=None, max_length=200)
    model: str | None = Field(default=None, min_length=1, max_length=200, examples=["gpt-5"])
    kinds: list[Annotated[str, Field(max_length=100)]] | None = Field(default=None, max_length=20, examples=[["code"]])
    """Kinds of sandbox the session may use."""
    network: NetworkRules | None = Field(default=None, examples=["packages", ["allow *.example.com:443"]])
    """Network policy of its sandboxes: `none`, a preset (`open`, `web`, `packages`, `git`), a rule, or a list of rules;
    omitted means that of each kind. A change also applies to running sandboxes; `null` restores that of each kind."""
    mcp: list[Annotated[str, Field(max_length=63)]] | None = Field(default=None, max_length=100, examples=[["tracker"]])
    """Names of MCP servers whose tools the agent gets; omitted or `null` means all that the owner may use, an empty
    list none."""
    policy: Policy | None = None
    instructions: str | None = Field(default=None, max_length=100_000)
    budget: int | None = Field(default=None, ge=1, le=2**53)
    """Tokens it may use in total."""
    visibility: VisibilityField | None = None
    """`private`: visible to the owner only. `tenant`: to every key of the tenant. Its sandboxes follow."""


class StartSessionRequest(SessionSettingsRequest):
    agent: str | None = Field(default=None, min_length=1, max_length=63, examples=["langgraph"])
    """The agent: an engine with Paddock's tools, or an agent program such as `claude-code`."""


class ForkSessionRequest(RequestBody):
    message: str | None = Field(default=None, min_length=1, max_length=100)
    """The last message to copy; all if omitted."""
    title: str | None = Field(default=None, max_length=200)


class TextPartRequest(RequestBody):
    type: Literal["text"] = "text"
    text: str = Field(max_length=LARGEST_MESSAGE)


class FilePartRequest(RequestBody):
    """An image or another file, in Base64."""

    type: Literal["file", "image"]
    name: str = Field(default="", max_length=255)
    mime: str | None = Field(default=None, max_length=200)
    data: str


class SendMessageRequest(RequestBody):
    text: str | None = Field(default=None, max_length=LARGEST_MESSAGE, examples=["How many lines has data.csv?"])
    content: list[Annotated[TextPartRequest | FilePartRequest, Field(discriminator="type")]] | None = Field(
        default=None, min_length=1, max_length=MAX_PARTS
    )

    @model_validator(mode="after")
    def _require_text_or_content(self) -> SendMessageRequest:
        if (self.text is None) == (self.content is None):
            raise ValueError("give one of 'text' and 'content'")
        return self

    def to_document(self) -> dict[str, Any]:
        """Return the body as input of `Written`."""
        parts = None
        if self.content is not None:
            parts = [
                # Images are recognised by their bytes, not by their declared type.
                part.model_dump() if isinstance(part, TextPartRequest) else part.model_dump(exclude_none=True)
                for part in self.content
            ]
        return {"text": self.text} if parts is None else {"content": parts}


class DecisionRequest(RequestBody):
    approval: str = Field(min_length=1, max_length=100, examples=["approval-0123456789abcdef"])
    digest: str = Field(min_length=1, max_length=128)
    """Digest of the approval as shown, so that a changed call cannot be approved unseen."""
    action: Literal["approve", "edit", "reject", "answer"]
    arguments: dict[str, Any] | None = None
    """With `edit`: the complete new arguments."""
    reason: str | None = Field(default=None, max_length=10_000)
    answer: str | None = Field(default=None, max_length=100_000)
    always: Literal["call", "tool"] | None = None
    """With `approve`: do not ask again in this session about this exact call, or about this tool."""

    @field_validator("arguments")
    @classmethod
    def _limit_depth(cls, arguments: dict[str, Any] | None) -> dict[str, Any] | None:
        if not is_nested_at_most(arguments):
            raise ValueError(f"may be nested {MAX_DEPTH} levels deep")
        return arguments

    def to_decision(self) -> ApprovalDecision:
        return validate_document(ApprovalDecision, self.model_dump(exclude_unset=True))


class ResumeSessionRequest(RequestBody):
    decisions: list[DecisionRequest] = Field(min_length=1, max_length=MAX_DECISIONS)

    def to_decisions(self) -> list[ApprovalDecision]:
        return [each.to_decision() for each in self.decisions]


class SessionPagination(ResponseBody):
    page: int
    page_size: int
    has_next_page: bool


class SessionListResponse(ResponseBody):
    items: list[Session]
    pagination: SessionPagination
    next: str | None = None
    """The value of `before` for the next page, stable under changes; omitted on the last page."""


class MessageListResponse(ResponseBody):
    items: list[SessionMessage]
    pagination: SessionPagination
    next: int
    """The value of `after` for the next page."""


class ApprovalListResponse(ResponseBody):
    items: list[Approval]
    pagination: SessionPagination
    next: str | None = None
    """The value of `before` for the next page; omitted on the last page."""


class DecidedApprovalsResponse(ResponseBody):
    items: list[Approval]


class SessionSearchResponse(ResponseBody):
    items: list[MessageHit]


async def read_listing_page(
    read: Callable[[int, str | None], Awaitable[Sequence[T]]],
    cursor_of: Callable[[T], str],
    page: int,
    size: int,
    before: str | None,
) -> tuple[list[T], SessionPagination]:
    """Return one page of a listing that is read in batches, each from the cursor of the last item."""
    to_skip = (page - 1) * size
    while to_skip:
        count = min(to_skip, _BATCH_SIZE)
        skipped = await read(count, before)
        if len(skipped) < count:
            return [], SessionPagination(page=page, page_size=size, has_next_page=False)
        before, to_skip = cursor_of(skipped[-1]), to_skip - count
    items = await read(size + 1, before)
    return list(items[:size]), SessionPagination(page=page, page_size=size, has_next_page=len(items) > size)


def validate_document(kind: type[M], document: Mapping[str, Any]) -> M:
    """Validate a document. Raises `InvalidInput` with a message for the client."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise InvalidInput(describe_validation_errors(problems)) from None


def dump_set_fields(body: BaseModel) -> dict[str, Any]:
    """Return the fields that the client sent."""
    return body.model_dump(exclude_unset=True)


def json_response(model: BaseModel, status: int = 200) -> Response:
    """Respond with a model as JSON, without null fields."""
    return Response(dump_response_json(model), status, media_type="application/json")


def dump_response_json(model: BaseModel) -> str:
    try:
        return model.model_dump_json(exclude_none=True, by_alias=True)
    except PydanticSerializationError:
        # Models may write lone surrogates, which UTF-8 cannot encode but a JSON escape can.
        return json.dumps(
            model.model_dump(exclude_none=True, by_alias=True), default=encode_non_json_value, separators=(",", ":")
        )
