"""Gives a provider's answer to the client: byte for byte where both speak one format, translated where they do not.

A stream ends as it should or breaks; it never ends as if all were well when it was not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from paddock.config.llm import LlmConfig
from paddock.errors import Unavailable
from paddock.llm.archive.archive import Archive
from paddock.llm.asking import RETRIED, Given, NoAnswer
from paddock.llm.calls import GENERATE, Call
from paddock.llm.collect import answer_events
from paddock.llm.exchange import Exchange, Outcome
from paddock.llm.formats.base import BrokenStream, StreamWriter
from paddock.llm.formats.counting import estimate_request
from paddock.llm.formats.embeddings import EMBED_FORMATS
from paddock.llm.formats.endings import Ending, EndWatch
from paddock.llm.formats.failures import kind_of
from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import Event, Failed, Failure, Finished, Request, Started, Usage
from paddock.llm.passing import from_provider
from paddock.llm.wire.base import Headers, Reply, UpstreamError

_JSON = (b"content-type", b"application/json")
_EVENTS: Headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]


MOST_KEPT = 32 * 2**20
CUT_SHORT = f"the answer is longer than {MOST_KEPT} bytes; only so much of it was kept"


class StreamLost(Exception):
    """An answer broke off after the client had been sent some of it."""


class Answering:
    """One answer on its way to the client."""

    def __init__(
        self,
        settings: LlmConfig,
        archive: Archive,
        exchange: Exchange,
        reply: Reply,
        started: float,
        settle: Callable[[Exchange], None],
    ) -> None:
        self._settings = settings
        self._settle = settle
        self._archive = archive
        self._exchange = exchange
        self._reply = reply
        self._started = started
        self._size = 0
        self.kept = False
        """Whether the exchange has been archived already, because an answer must not end before it is."""
        self.complete = False
        """Whether the client has all of a stream, so that it may leave before its end is told."""

    async def answer(self, call: Call, given: Given) -> None:
        """Raises `StreamLost` when the client has something but not all, `NoAnswer` when it has nothing."""
        self._exchange.status = 200
        if given.prepared.translated:
            if given.streams:
                await self._translate_stream(call, given)
            elif call.operation == GENERATE:
                await self._translate_whole(call, given)
            else:
                await self._translate_other(call, given)
        elif given.streams:
            await self._relay_stream(call, given)
        elif call.stream and not call.array:
            await self._whole_as_stream(call, given)
        else:
            await self._send_whole(given.answered.status, from_provider(given.answered.headers), given.body)

    async def _relay_stream(self, call: Call, given: Given) -> None:
        exchange, reply, answered = self._exchange, self._reply, given.answered
        watch = EndWatch(call.format)
        now, started = time.perf_counter, self._started
        exchange.first_byte = now() - started
        await reply.start(answered.status, [*from_provider(answered.headers), self._mark()])

        def push(piece: bytes) -> bool:
            watch.feed(piece)
            self._keep_piece(now() - started, piece)
            return reply.push(piece)

        try:
            if reply.pushes:
                if not push(given.body):
                    await reply.drained()
                await answered.pour(push, reply.drained)
            else:
                piece = given.body
                while piece:
                    watch.feed(piece)
                    self._keep_piece(now() - started, piece)
                    await reply.write(piece)
                    piece = await answered.piece()
        except UpstreamError as error:
            if not watch.finished:
                raise StreamLost(str(error)) from None
        finally:
            self.complete = watch.finished and watch.ending is not Ending.FAILED
        if not watch.finished:
            raise StreamLost("the provider ended the stream without saying that it had finished")
        if watch.ending is Ending.FAILED:
            exchange.outcome, exchange.error = Outcome.FAILED, "the provider failed in mid-stream"
        await self._end()

    async def _translate_whole(self, call: Call, given: Given) -> None:
        provider, client = FORMATS[given.prepared.ask.format], FORMATS[call.format]
        try:
            answer = provider.read_answer(given.body)
        except BrokenStream as error:
            raise _nonsense(given, error) from None
        request = given.prepared.request
        assert request is not None
        self._exchange.answered_model, answer.model = answer.model, call.model
        self._exchange.usage = answer.usage
        if call.stream:
            await self._say(call, client.writer(request), answer_events(answer))
        else:
            body = client.write_answer(answer, request)
            self._note(request)
            await self._send_whole(200, [_JSON], body)

    async def _translate_other(self, call: Call, given: Given) -> None:
        """A count of tokens, or embeddings."""
        provider, embed = given.prepared.ask.format, given.prepared.embed
        try:
            if embed is None:
                body = FORMATS[call.format].write_count(FORMATS[provider].read_count(given.body))
            else:
                answer = EMBED_FORMATS[provider].read_answer(given.body)
                answer.model = call.model
                self._exchange.usage = Usage(answer.input_tokens) if answer.input_tokens is not None else None
                body = EMBED_FORMATS[call.format].write_answer(answer, embed)
        except BrokenStream as error:
            raise _nonsense(given, error) from None
        await self._send_whole(200, [_JSON], body)

    async def estimate(self, call: Call) -> None:
        """Tell roughly how many tokens a prompt has, where its provider cannot."""
        tokens = estimate_request(call.format, self._exchange.request)
        self._exchange.estimated = True
        body = FORMATS[call.format].write_count(tokens)
        await self._send_whole(200, [_JSON, (b"x-paddock-estimated", b"true")], body)

    async def _translate_stream(self, call: Call, given: Given) -> None:
        """Events are read from the provider's bytes and written in the client's format, piece by piece."""
        request = given.prepared.request
        assert request is not None
        reader, writer = FORMATS[given.prepared.ask.format].reader(), FORMATS[call.format].writer(request)
        piece, answered = given.body, given.answered
        ended = False
        pings = _Pings(self._reply, writer, self._settings.ping_every)
        try:
            while not ended:
                events = reader.feed(piece) if piece else reader.close()
                if events:
                    self.complete = ended = await self._write(call, given, writer, events, pings)
                elif not piece:
                    raise BrokenStream("the stream ended without saying that it had finished")
                if not ended:
                    piece = await answered.piece()
        except (UpstreamError, BrokenStream) as error:
            if self._reply.started:
                raise StreamLost(str(error)) from None
            raise _nonsense(given, error) from None
        finally:
            pings.stop()
        self._note(request)
        await self._end()

    async def _write(self, call: Call, given: Given, writer: StreamWriter, events: list[Event], pings: _Pings) -> bool:
        """Send these events; whether they finished the stream."""
        ended = False
        failure: Failure | None = None
        pieces: list[bytes] = []
        for event in events:
            if isinstance(event, Started):
                self._exchange.answered_model, event.model = event.model, call.model
            elif isinstance(event, Finished):
                ended = True
                self._exchange.usage = event.usage
            elif isinstance(event, Failed):
                failure = event.failure
            pieces.append(writer.write(event))
            if ended or failure:
                break
        if failure is not None and not self._reply.started:
            raise NoAnswer(failure, passing=failure.status in RETRIED)
        data = b"".join(pieces)
        if data:
            if not self._reply.started:
                self._exchange.first_byte = time.perf_counter() - self._started
                await self._reply.start(200, [*_stream_head(call), self._mark()])
                pings.start()
            self._keep_piece(time.perf_counter() - self._started, data)
            pings.last = time.monotonic()
            await self._reply.write(data)
        if failure is not None:
            raise StreamLost(failure.message)
        return ended

    async def _whole_as_stream(self, call: Call, given: Given) -> None:
        """Some servers answer a request for a stream in one piece; the client still gets its stream."""
        format = FORMATS[call.format]
        try:
            answer = format.read_answer(given.body)
            asked = self._exchange.request
            request = await asyncio.to_thread(format.read_request, asked, model=call.model, stream=True)
        except BrokenStream as error:
            raise _nonsense(given, error) from None
        self._exchange.usage = answer.usage
        await self._say(call, format.writer(request), answer_events(answer))

    async def _say(self, call: Call, writer: StreamWriter, events: list[Event]) -> None:
        """A stream all of whose events are known."""
        data = b"".join(map(writer.write, events))
        self._exchange.first_byte = time.perf_counter() - self._started
        self._exchange.response.append((self._exchange.first_byte, data))
        await self._reply.start(200, [*_stream_head(call), self._mark()])
        await self._reply.write(data)
        await self._end()

    async def _send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        exchange = self._exchange
        exchange.status = status
        exchange.first_byte = exchange.total = time.perf_counter() - self._started
        exchange.response.append((exchange.first_byte, body))
        await self._keep()
        await self._reply.whole(status, [*headers, self._mark()], body)

    async def _end(self) -> None:
        try:
            await self._keep()
        except Unavailable as error:
            raise StreamLost(error.message) from None
        await self._reply.end()

    def _keep_piece(self, moment: float, piece: bytes) -> None:
        """Streams are held until they end, so there is an end to what is held of them."""
        self._size += len(piece)
        if self._size <= MOST_KEPT:
            self._exchange.response.append((moment, piece))
        elif CUT_SHORT not in self._exchange.notes:
            self._exchange.notes.append(CUT_SHORT)

    async def _keep(self) -> None:
        """Under strict durability, what is about to be acknowledged is on disk first."""
        if self._archive.strict and self._exchange.operation == GENERATE:
            self._exchange.total = time.perf_counter() - self._started
            self._settle(self._exchange)
            await self._archive.keep_now(self._exchange)
            self.kept = True

    def _mark(self) -> tuple[bytes, bytes]:
        return b"x-paddock-exchange", self._exchange.id.encode()

    def _note(self, request: Request) -> None:
        known = self._exchange.notes
        known += [text for text in request.notes if text not in known]


class _Pings:
    """Sends a sign of life into a translated stream while the provider thinks."""

    def __init__(self, reply: Reply, writer: StreamWriter, every: float) -> None:
        self._reply = reply
        self._ping = writer.ping
        self._every = every
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self.last = 0.0

    def start(self) -> None:
        self._arm(self._every)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _arm(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def _due(self) -> None:
        quiet = time.monotonic() - self.last
        if quiet < self._every:
            self._arm(self._every - quiet)
            return
        data = self._ping()
        if data and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send(data))
        self._arm(self._every)

    async def _send(self, data: bytes) -> None:
        try:
            await self._reply.write(data)
        except ConnectionError:
            pass  # Whoever writes the stream finds out too.


def _stream_head(call: Call) -> Headers:
    return [_JSON] if call.array else _EVENTS


def _nonsense(given: Given, error: Exception) -> NoAnswer:
    message = f"provider {given.route.provider.name} answered with nonsense: {error}"
    return NoAnswer(Failure(502, message, kind_of(502)))
