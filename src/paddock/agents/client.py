"""Asks models through the proxy of this server, over a socket that nobody else gets to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from paddock.agents.engines.base import ToolSpec
from paddock.errors import PaddockError
from paddock.llm.formats.base import BrokenStream
from paddock.llm.formats.failures import any_failure
from paddock.llm.formats.openai_chat.stream_reader import ChatReader
from paddock.llm.neutral import Delta, Event, Failed, Failure, Finished, PartStarted, Text, Thinking, ToolCall
from paddock.llm.wire.base import CannotConnect, Timeouts, UpstreamError
from paddock.llm.wire.client import Client, ClientAnswer, Origin
from paddock.llm.wire.outbound import Outbound

_ORIGIN = Origin(tls=False, host="paddock", port=80)
_TARGET = b"/v1/chat/completions"
_PATIENCE = Timeouts(connect=10.0, first_byte=3600.0, stall=3600.0)
"""How long providers may take is the proxy's to say; this only ends what would never end."""
_IDLE_AGE = 50.0
_MOST_DESCRIBED = 4096
_TOO_LONG = ("context_length_exceeded", "maximum context length", "prompt is too long", "exceeds the context")


class ModelError(PaddockError):
    """The model did not answer, or not to the end."""

    code = "MODEL_ERROR"

    def __init__(self, message: str = "", status: int = 502, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        """What the proxy answered; 502 for what broke off."""
        self.reason = code
        """The provider's word for it, if it has one."""

    @property
    def too_long(self) -> bool:
        """Whether the conversation is longer than the model can read."""
        said = f"{self.reason} {self.message}".lower()
        return self.status in (400, 413) and any(words in said for words in _TOO_LONG)


class UnknownModel(ModelError):
    """The session's model is not there."""

    code = "MODEL_NOT_FOUND"


class ModelClient(Client):
    """Connections to the proxy's own socket."""

    def __init__(self, path: Path) -> None:
        super().__init__(idle_age=_IDLE_AGE)
        self._path = path
        self._described: dict[int, tuple[ToolSpec, str]] = {}
        """Sessions of the same kinds share their tools, and ask with them again and again."""

    async def ask(
        self, key: str, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[Event, None]:
        """What the model says, as it comes; ends with `Finished`. Raises `ModelError`."""
        body: dict[str, Any] = {
            "model": model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        said = _json(body)
        if tools:
            said = f'{said[:-1]},"tools":[{",".join(map(self.described, tools))}]}}'
        # Half of a character pair, which a tool may have written, is nothing that can be sent.
        written = said.encode(errors="replace")
        headers = [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")]
        try:
            answer = await self.send(_ORIGIN, "POST", _TARGET, headers, written, _PATIENCE)
            try:
                if answer.status != 200:
                    raise _error(any_failure(answer.status, await answer.read()))
                async for event in _events(answer):
                    if isinstance(event, Failed):
                        raise _error(event.failure)
                    yield event
            finally:
                answer.close()
        except UpstreamError as error:
            raise ModelError(f"the answer of the model broke off: {error}") from error
        except BrokenStream as error:
            raise ModelError(f"the answer of the model cannot be read: {error}") from error

    def described(self, tool: ToolSpec) -> str:
        """A tool as the model is told of it, in JSON."""
        known = self._described.get(id(tool))
        if known is None or known[0] is not tool:
            if len(self._described) >= _MOST_DESCRIBED:
                self._described.clear()
            known = self._described[id(tool)] = tool, _json(tool_object(tool))
        return known[1]

    async def _connect(self, origin: Origin, timeout: float) -> Outbound:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_unix_connection(
                    lambda: Outbound(self, origin.key, _IDLE_AGE, loop), str(self._path)
                )
        except (OSError, TimeoutError) as error:
            raise CannotConnect(f"the proxy of this server does not answer: {error}") from None
        if self._closed:
            connection.abort()
            raise CannotConnect("the server is stopping")
        return connection


async def _events(answer: ClientAnswer) -> AsyncIterator[Event]:
    reader = ChatReader()
    while data := await answer.piece():
        for event in reader.feed(data):
            yield _clean(event)
            if isinstance(event, Finished | Failed):
                # Read to the end of the body, so that the connection serves the next question.
                with suppress(UpstreamError):
                    await answer.read()
                return
    for event in reader.close():
        yield _clean(event)


def _clean(event: Event) -> Event:
    """Without halves of character pairs, which no file and no database can hold."""
    match event:
        case Delta() if not _whole(event.text):
            return Delta(event.index, _mended(event.text))
        case PartStarted(part=ToolCall() as part) if not _whole(part.name):
            return PartStarted(event.index, ToolCall(part.id, _mended(part.name), part.arguments))
        case PartStarted(part=Text() | Thinking() as words) if not _whole(words.text):
            return PartStarted(event.index, type(words)(_mended(words.text)))
    return event


def _whole(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _mended(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def tool_object(tool: ToolSpec) -> dict[str, Any]:
    """A tool as the model is told of it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _error(failure: Failure) -> ModelError:
    reason = failure.code or failure.kind
    error = UnknownModel if reason == "model_not_found" else ModelError
    return error(_mended(failure.message), failure.status, reason)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is nothing that a model can be sent")
