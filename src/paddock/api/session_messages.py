"""What is asked and said about chat sessions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Header, Query, Response
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from paddock.agents.schemas import DEEPEST, shallow
from paddock.api.errors import explain
from paddock.api.events import plain
from paddock.api.wire import Asked, Said, Shared
from paddock.errors import InvalidInput
from paddock.model.sessions import LARGEST_MESSAGE, Approval, Decision, Message, Policy, Session
from paddock.store.sessions import Hit

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
MOST_PARTS = 100
MOST_DECISIONS = 200
LARGEST_PAGE = 1000
_AT_ONCE = 500
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
Page = Annotated[int, Query(ge=1, le=LARGEST_PAGE)]
PageSize = Annotated[int, Query(ge=1, le=200, alias="pageSize")]
Before = Annotated[str | None, Query(min_length=1, max_length=200, description="`next` of an earlier page.")]


class SettingsBody(Asked):
    """What a session can be told to be; what is left out is as the server has it."""

    title: str | None = Field(default=None, max_length=200)
    model: str | None = Field(default=None, min_length=1, max_length=200, examples=["gpt-5"])
    kinds: list[Annotated[str, Field(max_length=100)]] | None = Field(default=None, max_length=20, examples=[["code"]])
    """Kinds of sandbox it may use."""
    policy: Policy | None = None
    instructions: str | None = Field(default=None, max_length=100_000)
    budget: int | None = Field(default=None, ge=1, le=2**53)
    """Tokens it may use in all."""
    visibility: Shared | None = None
    """`private` for its owner alone, `tenant` for every key of the tenant. Its sandboxes follow."""


class SessionBody(SettingsBody):
    agent: str | None = Field(default=None, min_length=1, max_length=63, examples=["langgraph"])
    """Who works: an engine with Paddock's tools, or an agent program such as `claude-code`."""


class ForkBody(Asked):
    message: str | None = Field(default=None, min_length=1, max_length=100)
    """The last message to take along; all if left out."""
    title: str | None = Field(default=None, max_length=200)


class TextBody(Asked):
    type: Literal["text"] = "text"
    text: str = Field(max_length=LARGEST_MESSAGE)


class DataBody(Asked):
    """A picture or another file, in Base64."""

    type: Literal["file", "image"]
    name: str = Field(default="", max_length=255)
    mime: str | None = Field(default=None, max_length=200)
    data: str


class MessageBody(Asked):
    text: str | None = Field(default=None, max_length=LARGEST_MESSAGE, examples=["How many lines has data.csv?"])
    content: list[Annotated[TextBody | DataBody, Field(discriminator="type")]] | None = Field(
        default=None, min_length=1, max_length=MOST_PARTS
    )

    @model_validator(mode="after")
    def _one(self) -> MessageBody:
        if (self.text is None) == (self.content is None):
            raise ValueError("give one of 'text' and 'content'")
        return self

    def document(self) -> dict[str, Any]:
        """As `Written` takes it."""
        parts = None
        if self.content is not None:
            parts = [
                # Whether it is a picture is seen from its bytes, whatever it is called.
                part.model_dump() if isinstance(part, TextBody) else part.model_dump(exclude_none=True)
                for part in self.content
            ]
        return {"text": self.text} if parts is None else {"content": parts}


class DecisionBody(Asked):
    approval: str = Field(min_length=1, max_length=100, examples=["approval-0123456789abcdef"])
    digest: str = Field(min_length=1, max_length=128)
    """That of the approval as it was shown, so that nobody approves what they have not seen."""
    action: Literal["approve", "edit", "reject", "answer"]
    arguments: dict[str, Any] | None = None
    """With `edit`: all arguments, as they shall be."""
    reason: str | None = Field(default=None, max_length=10_000)
    answer: str | None = Field(default=None, max_length=100_000)
    always: Literal["call", "tool"] | None = None
    """With `approve`: never ask again in this session about this very call, or about this tool."""

    @field_validator("arguments")
    @classmethod
    def _shallow(cls, arguments: dict[str, Any] | None) -> dict[str, Any] | None:
        if not shallow(arguments):
            raise ValueError(f"may be nested {DEEPEST} levels deep")
        return arguments

    def decision(self) -> Decision:
        return made(Decision, self.model_dump(exclude_unset=True))


class ResumeBody(Asked):
    decisions: list[DecisionBody] = Field(min_length=1, max_length=MOST_DECISIONS)

    def all(self) -> list[Decision]:
        return [each.decision() for each in self.decisions]


class PagedSaid(Said):
    page: int
    page_size: int
    has_next_page: bool


class SessionList(Said):
    items: list[Session]
    pagination: PagedSaid
    next: str | None = None
    """What to give as `before` for those that follow, whatever changes meanwhile; left out if there are none."""


class MessageList(Said):
    items: list[Message]
    pagination: PagedSaid
    next: int
    """What to give as `after` for what follows."""


class ApprovalList(Said):
    items: list[Approval]
    pagination: PagedSaid
    next: str | None = None
    """What to give as `before` for those that follow; left out if there are none."""


class DecidedList(Said):
    items: list[Approval]


class HitList(Said):
    items: list[Hit]


async def sliced(
    read: Callable[[int, str | None], Awaitable[Sequence[T]]],
    place: Callable[[T], str],
    page: int,
    size: int,
    before: str | None,
) -> tuple[list[T], PagedSaid]:
    """One page of a listing that is read so many at a time, each time from the place of the last one."""
    left = (page - 1) * size
    while left:
        asked = min(left, _AT_ONCE)
        passed = await read(asked, before)
        if len(passed) < asked:
            return [], PagedSaid(page=page, page_size=size, has_next_page=False)
        before, left = place(passed[-1]), left - asked
    found = await read(size + 1, before)
    return list(found[:size]), PagedSaid(page=page, page_size=size, has_next_page=len(found) > size)


def made(kind: type[M], document: Mapping[str, Any]) -> M:
    """Raises `InvalidInput` in words for those who sent it."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise InvalidInput(explain(problems)) from None


def chosen(body: BaseModel) -> dict[str, Any]:
    """What a body says, and nothing of what it leaves out."""
    return body.model_dump(exclude_unset=True)


def said(model: BaseModel, status: int = 200) -> Response:
    """A model as an answer, without what is nothing."""
    return Response(written(model), status, media_type="application/json")


def written(model: BaseModel) -> str:
    try:
        return model.model_dump_json(exclude_none=True, by_alias=True)
    except PydanticSerializationError:
        # Half a character, which some model wrote, is nothing in UTF-8; JSON can name it all the same.
        return json.dumps(model.model_dump(exclude_none=True, by_alias=True), default=plain, separators=(",", ":"))
