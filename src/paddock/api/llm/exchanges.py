"""Routes for recorded model exchanges: list, search, show, export, follow and delete."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime, Field
from starlette.responses import Response

from paddock.api.http.authorization import KeyAdmin, LlmReader
from paddock.api.http.body_models import ResponseBody, UtcDateTime
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.server_sent_events import (
    HEARTBEAT_COMMENT,
    MAX_RESUME_POSITION,
    STREAM_HEADERS,
    STREAM_OPENED,
    parse_resume_position,
    with_heartbeats,
)
from paddock.api.services import ApiServices
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.archive.conversation_threads import ConversationThread
from paddock.llm.exchange import Exchange, ExchangeOutcome
from paddock.model.exchanges import ExchangeFilters, ExchangeSummary

_JOINED_BYTES = 2**20
_RAW_HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Cache-Control": "no-store"}


class TokenUsageResponse(ResponseBody):
    """Tokens."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int


class ExchangeSummaryResponse(ResponseBody):
    id: str = Field(examples=["ex-065bfeda25e000669933832675"])
    number: int
    """Position in the order of writing."""
    at: AwareDatetime
    key: str
    sandbox: str | None = None
    run: str | None = None
    session: str | None = None
    user: str | None = None
    client: str
    conversation: str | None = None
    """The client's own name for the conversation."""
    format: str
    operation: str
    model: str
    stream: bool
    route: str | None = None
    provider: str | None = None
    provider_kind: str | None = None
    """`script` and `replay` mark responses that no model gave."""
    provider_model: str | None = None
    provider_format: str | None = None
    status: int
    outcome: ExchangeOutcome
    error: str | None = None
    usage: TokenUsageResponse | None = None
    estimated: bool
    cost: float | None = None
    """In US dollars."""
    first_byte: float | None = None
    """Seconds until the response began."""
    total: float
    """Seconds until it ended."""
    retries: int
    notes: list[str]
    request_size: int
    response_size: int
    preview: str | None = None
    """The beginning of the newest message of the request."""

    @classmethod
    def from_summary(cls, summary: ExchangeSummary) -> ExchangeSummaryResponse:
        values = asdict(summary) | {"key": summary.key_id, "at": _to_datetime(summary.at), "notes": list(summary.notes)}
        if summary.input is not None:
            values["usage"] = TokenUsageResponse(
                **{name: values[name] or 0 for name in TokenUsageResponse.model_fields}
            )
        return cls(**{name: value for name, value in values.items() if name in cls.model_fields})


class ExchangePageResponse(ResponseBody):
    items: list[ExchangeSummaryResponse]
    next: str | None = None
    """The value of `cursor` for the next page; omitted on the last."""


class ExchangeResponse(ExchangeSummaryResponse):
    messages: list[dict[str, Any]] | None = None
    """The request's messages in a format-independent form; omitted if the request is malformed."""
    tools: list[str] | None = None
    """Names of the tools offered to the model."""
    answer: dict[str, Any] | None = None
    pieces: list[tuple[float, int]]
    """When each chunk of the response arrived, in seconds, and its size."""


class ConversationResponse(ResponseBody):
    id: str
    number: int
    """Number of its first exchange."""
    kind: Literal["main", "subagent", "branch", "side"]
    """There may be several `main` ones: one per independent task. Unanswered conversations are `side`."""
    parent: str | None = None
    """The conversation that a branch left."""
    conversation: str | None = None
    at: AwareDatetime
    last_at: AwareDatetime
    models: list[str]
    turns: int
    """Number of answered exchanges."""
    exchanges: list[str]
    """All exchanges, including refused and failed ones."""
    usage: TokenUsageResponse
    estimated: bool
    """Whether some of the token counts are estimates."""
    cost: float | None = None
    messages: list[dict[str, Any]]
    notes: list[str]


class ConversationListResponse(ResponseBody):
    items: list[ConversationResponse]


# Async although nothing is awaited: FastAPI would run a plain function in a thread on each request.
async def _collect_filters(
    sandbox: str | None = None,
    run: str | None = None,
    session: str | None = None,
    user: str | None = None,
    key: str | None = None,
    model: Annotated[str | None, Query(description="The requested name, or the provider's name.")] = None,
    provider: str | None = None,
    conversation: str | None = None,
    outcome: ExchangeOutcome | None = None,
    status: Annotated[int | None, Query(ge=0, le=999)] = None,
    since: UtcDateTime | None = None,
    until: UtcDateTime | None = None,
    number: Annotated[int | None, Query(ge=0, le=MAX_RESUME_POSITION)] = None,
    text: Annotated[str | None, Query(description='Words, "phrases" and prefix* of messages.')] = None,
) -> ExchangeFilters:
    """Collect the filters of a request."""
    return ExchangeFilters(
        number=number,
        sandbox=sandbox,
        run=run,
        session=session,
        user=user,
        key=key,
        model=model,
        provider=provider,
        conversation=conversation,
        outcome=outcome,
        status=status,
        since=since.timestamp() if since else None,
        until=until.timestamp() if until else None,
        text=text,
    )


ExchangeFilterQuery = Annotated[ExchangeFilters, Depends(_collect_filters)]
CursorQuery = Annotated[str | None, Query(pattern=r"^ex-[0-9a-f]{26}$", description="`next` of the page before.")]
LimitQuery = Annotated[int, Query(ge=1, le=500)]
AfterQuery = Annotated[int | None, Query(ge=0, le=MAX_RESUME_POSITION, description="Only exchanges after this number.")]
LastEventIdHeader = Annotated[
    str | None, Header(alias="Last-Event-ID", description="As `after`, and counts before it.")
]
_EXCHANGE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": ExchangeResponse, "description": "The exchange, or with `raw` the original bytes."}
}
_EXPORT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Lines of JSON.", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}
_STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "An endless stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Exchanges"])
    archive, fleet = services.archive, services.fleet

    @router.get("/exchanges", responses=openapi_errors(), response_model_exclude_none=True)
    async def list_exchanges(
        principal: LlmReader, filters: ExchangeFilterQuery, cursor: CursorQuery = None, limit: LimitQuery = 50
    ) -> ExchangePageResponse:
        """List exchanges with models, newest first. New messages become searchable after a moment."""
        found, following = await archive.list_exchanges(principal.tenant, filters, cursor=cursor, limit=limit)
        return ExchangePageResponse(
            items=[ExchangeSummaryResponse.from_summary(summary) for summary in found], next=following
        )

    @router.get(
        "/exchanges/export", responses={**openapi_errors(), **_EXPORT_RESPONSES}, response_class=StreamingResponse
    )
    async def export_exchanges(
        principal: LlmReader,
        filters: ExchangeFilterQuery,
        form: Literal["openai", "anthropic"] = "openai",
        unanswered: Annotated[bool, Query(description="Include unanswered conversations.")] = False,
    ) -> Response:
        """Export conversations, one per line, with messages in OpenAI's chat format or Anthropic's.

        They are ordered by their start. Reasoning of models is included, even if the client did not send it back.
        """
        lines = archive.export_conversations(principal.tenant, filters, form, unanswered=unanswered)
        return StreamingResponse(lines, 200, STREAM_HEADERS, "application/x-ndjson")

    @router.get(
        "/exchanges/events", responses={**openapi_errors(), **_STREAM_RESPONSES}, response_class=StreamingResponse
    )
    async def follow_exchanges(
        principal: LlmReader,
        after: AfterQuery = None,
        sandbox: str | None = None,
        last_event_id: LastEventIdHeader = None,
    ) -> Response:
        """Stream exchanges as they are written, from now on or after a number. `id:` is the exchange's number."""
        position = parse_resume_position(last_event_id, after, "number of an exchange")
        frames = _stream_exchanges(archive, principal.tenant, position, sandbox)
        return StreamingResponse(frames, 200, STREAM_HEADERS, "text/event-stream")

    @router.get(
        "/exchanges/{exchange_id}", responses={**openapi_errors(404), **_EXCHANGE_RESPONSES}, response_model=None
    )
    async def get_exchange(
        exchange_id: str, principal: LlmReader, raw: Literal["request", "response"] | None = None
    ) -> Response:
        """Return one exchange; with `raw`, the original bytes of the request or the response."""
        if raw is not None:
            return _raw_response(await archive.get(principal.tenant, exchange_id), raw)
        return _json_response(_exchange_document(*await archive.write_exchange(principal.tenant, exchange_id)))

    @router.get(
        "/exchanges/{exchange_id}/conversation",
        responses={**openapi_errors(404), 200: {"model": ConversationResponse, "description": "The conversation."}},
        response_model=None,
    )
    async def get_conversation(exchange_id: str, principal: LlmReader) -> Response:
        """Return the conversation that an exchange is part of."""
        return _json_response(_conversation_document(*await archive.write_conversation(principal.tenant, exchange_id)))

    @router.delete("/exchanges/{exchange_id}", status_code=204, responses=openapi_errors(404))
    async def delete_exchange(exchange_id: str, principal: KeyAdmin) -> None:
        """Delete an exchange and the messages that no other exchange has. Requires the scope `keys:admin`."""
        await archive.delete(principal.tenant, exchange_id)

    @router.get(
        "/sandboxes/{sandbox_id}/conversations",
        responses={**openapi_errors(404), 200: {"model": ConversationListResponse, "description": "Conversations."}},
        response_model=None,
    )
    async def list_conversations(sandbox_id: str, principal: LlmReader) -> Response:
        """List a sandbox's conversations: main, sub-agents, branches and side calls."""
        found = await archive.write_conversations(principal.tenant, sandbox_id)
        if not found:
            await fleet.get(principal.tenant, sandbox_id)
        pieces = [b'{"items": [']
        for number, (thread, content) in enumerate(found):
            pieces += [b", "] if number else []
            pieces += _conversation_document(thread, content)
        return _json_response([*pieces, b"]}"])

    return router


def _raw_response(exchange: Exchange, which: str) -> Response:
    body = exchange.request if which == "request" else b"".join([piece for _, piece in exchange.response])
    kind = "application/octet-stream"
    if body.lstrip()[:1] in (b"{", b"["):
        kind = "application/json"
    elif which == "response" and exchange.stream and exchange.status == 200:
        kind = "text/event-stream"
    return Response(body, 200, _RAW_HEADERS, kind)


def _json_response(pieces: Sequence[bytes]) -> Response:
    """Respond with JSON in pieces. Long responses are sent piece by piece: joining them takes long."""
    size = sum(map(len, pieces))
    if size <= _JOINED_BYTES:
        return Response(b"".join(pieces), media_type="application/json")

    async def send() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return StreamingResponse(send(), 200, {"Content-Length": str(size)}, "application/json")


def _exchange_document(summary: ExchangeSummary, content: Sequence[bytes]) -> Sequence[bytes]:
    response = ExchangeSummaryResponse.from_summary(summary)
    return _join_objects(response.model_dump_json(by_alias=True, exclude_none=True).encode(), content)


def _conversation_document(thread: ConversationThread, content: Sequence[bytes]) -> Sequence[bytes]:
    response = ConversationResponse(
        id=thread.id,
        number=thread.exchanges[0].number,
        kind=thread.kind,
        parent=thread.parent,
        conversation=thread.conversation,
        at=_to_datetime(thread.exchanges[0].at),
        last_at=_to_datetime(thread.exchanges[-1].at),
        models=thread.models,
        turns=thread.turns,
        exchanges=[each.id for each in thread.exchanges],
        usage=TokenUsageResponse(**asdict(thread.usage)),
        estimated=thread.estimated,
        cost=thread.cost,
        messages=[],
        notes=[],
    )
    head = response.model_dump_json(by_alias=True, exclude_none=True, exclude={"messages", "notes"})
    return _join_objects(head.encode(), content)


def _join_objects(first: bytes, second: Sequence[bytes]) -> Sequence[bytes]:
    """Return one JSON object with the fields of two, of which neither is empty. The second is given in pieces."""
    return [first[:-1], b", ", second[0][1:], *second[1:]]


def _to_datetime(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


async def _stream_exchanges(
    archive: ExchangeArchive, tenant: str, after: int | None, sandbox: str | None
) -> AsyncIterator[bytes]:
    yield STREAM_OPENED
    async with aclosing(with_heartbeats(archive.follow_written(tenant, after))) as following:  # type: ignore[type-var]
        async for summary in following:
            if summary is None:
                yield HEARTBEAT_COMMENT
            elif sandbox in (None, summary.sandbox):
                document = ExchangeSummaryResponse.from_summary(summary).model_dump_json(
                    by_alias=True, exclude_none=True
                )
                yield f"id: {summary.number}\nevent: exchange\ndata: {document}\n\n".encode()
