"""What models were asked and what they answered: listed, searched, shown, exported, followed, deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from paddock.api.access import KeyAdmin, LlmReader
from paddock.api.errors import documented
from paddock.api.following import FOLLOWS, LARGEST, STILL_HERE, STREAM_HEADERS, alive, place
from paddock.api.services import Services
from paddock.api.wire import Moment, Said
from paddock.llm.archive.answers import answer_of, request_of
from paddock.llm.archive.archive import Archive
from paddock.llm.archive.threads import Thread
from paddock.llm.exchange import Exchange, Outcome
from paddock.llm.neutral import Answer, Media, Message, Part, Refusal, Request, Text, Thinking, ToolCall, ToolResult
from paddock.model.exchanges import Filters, Summary

_TYPES: Mapping[type[Any], str] = {
    Text: "text",
    Media: "media",
    Thinking: "thinking",
    ToolCall: "toolCall",
    ToolResult: "toolResult",
    Refusal: "refusal",
}
_RAW_HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Cache-Control": "no-store"}


class UsageSaid(Said):
    """Tokens."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int


class ExchangeSaid(Said):
    id: str = Field(examples=["ex-065bfeda25e000669933832675"])
    number: int
    """Its place in the order of writing."""
    at: AwareDatetime
    key: str
    sandbox: str | None = None
    run: str | None = None
    session: str | None = None
    user: str | None = None
    client: str
    conversation: str | None = None
    """What the client itself calls the conversation."""
    format: str
    operation: str
    model: str
    stream: bool
    route: str | None = None
    provider: str | None = None
    provider_kind: str | None = None
    """`script` and `replay` mark answers that no model gave."""
    provider_model: str | None = None
    provider_format: str | None = None
    status: int
    outcome: Outcome
    error: str | None = None
    usage: UsageSaid | None = None
    estimated: bool
    cost: float | None = None
    """In US dollars."""
    first_byte: float | None = None
    """Seconds until the answer began."""
    total: float
    """Seconds until it ended."""
    retries: int
    notes: list[str]
    request_size: int
    response_size: int
    preview: str | None = None
    """The beginning of the newest message of the request."""

    @classmethod
    def of(cls, summary: Summary) -> ExchangeSaid:
        values = asdict(summary) | {"key": summary.key_id, "at": _moment(summary.at), "notes": list(summary.notes)}
        if summary.input is not None:
            values["usage"] = UsageSaid(**{name: values[name] or 0 for name in UsageSaid.model_fields})
        return cls(**{name: value for name, value in values.items() if name in cls.model_fields})


class ExchangePage(Said):
    items: list[ExchangeSaid]
    next: str | None = None
    """What to give as `cursor` for the next page; left out on the last."""


class ExchangeShown(ExchangeSaid):
    messages: list[dict[str, Any]] | None = None
    """What was asked, in a form that all formats share; left out where the request makes no sense."""
    tools: list[str] | None = None
    """Names of the tools that were offered."""
    answer: dict[str, Any] | None = None
    pieces: list[tuple[float, int]]
    """When the bytes of the answer came, in seconds, and how many."""


class ConversationSaid(Said):
    id: str
    number: int
    """That of its first exchange."""
    kind: Literal["main", "subagent", "branch", "side"]
    """There may be several main ones: each task of its own is one. What nobody answered is `side`."""
    parent: str | None = None
    """The conversation that a branch left."""
    conversation: str | None = None
    at: AwareDatetime
    last_at: AwareDatetime
    models: list[str]
    turns: int
    """How many of its exchanges were answered."""
    exchanges: list[str]
    """All of them, those that were refused or failed included."""
    usage: UsageSaid
    estimated: bool
    """Whether some of the tokens are a guess."""
    cost: float | None = None
    messages: list[dict[str, Any]]
    notes: list[str]


class ConversationList(Said):
    items: list[ConversationSaid]


# Async, though it waits for nothing: what is not is sent to a thread, on each request.
async def _filters(
    sandbox: str | None = None,
    run: str | None = None,
    session: str | None = None,
    user: str | None = None,
    key: str | None = None,
    model: Annotated[str | None, Query(description="As it was asked for, or the provider's name for it.")] = None,
    provider: str | None = None,
    conversation: str | None = None,
    outcome: Outcome | None = None,
    status: Annotated[int | None, Query(ge=0, le=999)] = None,
    since: Moment | None = None,
    until: Moment | None = None,
    number: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
    text: Annotated[str | None, Query(description='Words, "phrases" and begin* that were said.')] = None,
) -> Filters:
    """The filters of a request."""
    return Filters(
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


Asking = Annotated[Filters, Depends(_filters)]
Cursor = Annotated[str | None, Query(pattern=r"^ex-[0-9a-f]{26}$", description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=500)]
After = Annotated[int | None, Query(ge=0, le=LARGEST, description="Only exchanges after this number.")]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="As `after`, and counts before it.")]
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"model": ExchangeShown, "description": "The exchange, or with `raw` the bytes as they came."}
}
_LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Lines of JSON.", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}
_FRAMES: dict[int | str, dict[str, Any]] = {
    200: {"description": "A stream that goes on.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Exchanges"])
    archive, fleet = services.archive, services.fleet

    @router.get("/exchanges", responses=documented(), response_model_exclude_none=True)
    async def list_exchanges(
        principal: LlmReader, asking: Asking, cursor: Cursor = None, limit: Limit = 50
    ) -> ExchangePage:
        """Exchanges with models, newest first. What was said can be found a moment after it was."""
        found, following = await archive.list(principal.tenant, asking, cursor=cursor, limit=limit)
        return ExchangePage(items=[ExchangeSaid.of(summary) for summary in found], next=following)

    @router.get("/exchanges/export", responses={**documented(), **_LINES}, response_class=StreamingResponse)
    async def export_exchanges(
        principal: LlmReader,
        asking: Asking,
        form: Literal["openai", "anthropic"] = "openai",
        unanswered: Annotated[bool, Query(description="Also conversations that nobody answered.")] = False,
    ) -> Response:
        """Conversations, one on each line, with messages as OpenAI's chat API or Anthropic's has them.

        They come in the order in which they began. What a model thought is in them, also where the client did not send
        it back.
        """
        lines = archive.export(principal.tenant, asking, form, unanswered=unanswered)
        return StreamingResponse(lines, 200, STREAM_HEADERS, "application/x-ndjson")

    @router.get("/exchanges/events", responses={**documented(), **_FRAMES}, response_class=StreamingResponse)
    async def follow_exchanges(
        principal: LlmReader,
        after: After = None,
        sandbox: str | None = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """Exchanges as they are written, from now on or after a number. `id:` is the exchange's number."""
        begins = place(last_event_id, after, "number of an exchange")
        frames = _follow(archive, principal.tenant, begins, sandbox)
        return StreamingResponse(frames, 200, STREAM_HEADERS, "text/event-stream")

    @router.get("/exchanges/{exchange_id}", responses={**documented(404), **_BYTES}, response_model=None)
    async def get_exchange(
        exchange_id: str, principal: LlmReader, raw: Literal["request", "response"] | None = None
    ) -> Response:
        """All that was said in one exchange; with `raw`, the request's or the answer's bytes as they came."""
        summary, exchange = await archive.show(principal.tenant, exchange_id)
        if raw is not None:
            return _raw(exchange, raw)
        document = await asyncio.to_thread(_shown, summary, exchange)
        return Response(document, media_type="application/json")

    @router.get(
        "/exchanges/{exchange_id}/conversation",
        responses={**documented(404), 200: {"model": ConversationSaid, "description": "The conversation."}},
        response_model=None,
    )
    async def get_conversation(exchange_id: str, principal: LlmReader) -> Response:
        """The conversation that an exchange is part of."""
        thread = await archive.conversation(principal.tenant, exchange_id)
        document = await asyncio.to_thread(lambda: _to_json(_thread(thread)))
        return Response(document, media_type="application/json")

    @router.delete("/exchanges/{exchange_id}", status_code=204, responses=documented(404))
    async def delete_exchange(exchange_id: str, principal: KeyAdmin) -> None:
        """Forget an exchange, and what was said in no other. Takes the scope `keys:admin`."""
        await archive.delete(principal.tenant, exchange_id)

    @router.get(
        "/sandboxes/{sandbox_id}/conversations",
        responses={**documented(404), 200: {"model": ConversationList, "description": "Conversations."}},
        response_model=None,
    )
    async def list_conversations(sandbox_id: str, principal: LlmReader) -> Response:
        """What was said in a sandbox, joined into conversations: the main one, sub-agents, branches, side calls."""
        threads = await archive.conversations(principal.tenant, sandbox_id)
        if not threads:
            await fleet.get(principal.tenant, sandbox_id)
        document = await asyncio.to_thread(lambda: _to_json({"items": [_thread(thread) for thread in threads]}))
        return Response(document, media_type="application/json")

    return router


def _raw(exchange: Exchange, which: str) -> Response:
    body = exchange.request if which == "request" else b"".join([piece for _, piece in exchange.response])
    kind = "application/octet-stream"
    if body.lstrip()[:1] in (b"{", b"["):
        kind = "application/json"
    elif which == "response" and exchange.stream and exchange.status == 200:
        kind = "text/event-stream"
    return Response(body, 200, _RAW_HEADERS, kind)


def _shown(summary: Summary, exchange: Exchange) -> bytes:
    document = ExchangeSaid.of(summary).model_dump(mode="json", by_alias=True, exclude_none=True)
    request, answer = request_of(exchange), answer_of(exchange)
    if isinstance(request, Request):
        document["messages"] = [_message(message) for message in request.messages]
        document["tools"] = [tool.name for tool in request.tools]
    if isinstance(answer, Answer):
        document["answer"] = {
            "id": answer.id,
            "model": answer.model,
            "parts": [_part(part) for part in answer.parts],
            "finish": answer.finish,
            "notes": answer.notes,
        }
    document["pieces"] = [(moment, len(piece)) for moment, piece in exchange.response]
    return _to_json(document)


def _thread(thread: Thread) -> dict[str, Any]:
    usage = UsageSaid(**asdict(thread.usage))
    said = ConversationSaid(
        id=thread.id,
        number=thread.exchanges[0].number,
        kind=thread.kind,
        parent=thread.parent,
        conversation=thread.conversation,
        at=_moment(thread.exchanges[0].at),
        last_at=_moment(thread.exchanges[-1].at),
        models=thread.models,
        turns=thread.turns,
        exchanges=[each.id for each in thread.exchanges],
        usage=usage,
        estimated=thread.estimated,
        cost=thread.cost,
        messages=[],
        notes=thread.notes,
    )
    document = said.model_dump(mode="json", by_alias=True, exclude_none=True)
    document["messages"] = [_message(message) for message in thread.messages]
    return document


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [_part(part) for part in message.parts]}


def _part(part: Part) -> dict[str, Any]:
    values = {to_camel(name): value for name, value in asdict(part).items() if value is not None and value is not False}
    if isinstance(part, ToolResult):
        values["content"] = [_part(each) for each in part.content]
    return {"type": _TYPES[type(part)], **values}


def _to_json(document: Any) -> bytes:
    """JSON whatever a request held: letters that are half of one, and numbers that are none."""
    text = json.dumps(document)
    try:
        json.dumps(document, allow_nan=False)
    except ValueError:
        text = json.dumps(json.loads(text, parse_constant=lambda _: None))
    return text.encode()


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


async def _follow(archive: Archive, tenant: str, after: int | None, sandbox: str | None) -> AsyncIterator[bytes]:
    yield FOLLOWS
    async with aclosing(alive(archive.follow(tenant, after))) as following:  # type: ignore[type-var]
        async for summary in following:
            if summary is None:
                yield STILL_HERE
            elif sandbox in (None, summary.sandbox):
                document = ExchangeSaid.of(summary).model_dump_json(by_alias=True, exclude_none=True)
                yield f"id: {summary.number}\nevent: exchange\ndata: {document}\n\n".encode()
