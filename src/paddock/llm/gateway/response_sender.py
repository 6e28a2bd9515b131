"""Send a provider's answer to the client: byte for byte if both use one format, translated otherwise.

A stream ends properly or visibly breaks; a partial answer never looks complete.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence

from paddock.config.llm import LlmConfig
from paddock.errors import Unavailable
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.exchange import Exchange, ExchangeOutcome
from paddock.llm.formats.answer_events import stream_events_from_answer
from paddock.llm.formats.base import BrokenModelStream, ModelStreamWriter
from paddock.llm.formats.neutral import (
    AnswerStreamFailed,
    AnswerStreamFinished,
    AnswerStreamStarted,
    ModelFailure,
    ModelRequest,
    StreamEvent,
    TokenUsage,
)
from paddock.llm.formats.provider_errors import error_kind_for_status
from paddock.llm.formats.registry import FORMATS
from paddock.llm.formats.stream_end import StreamEndDetector, StreamEnding
from paddock.llm.formats.token_counting import estimate_request_tokens
from paddock.llm.gateway.header_filter import headers_for_client
from paddock.llm.gateway.recent_answers import RecentAnswers
from paddock.llm.gateway.retries_and_fallbacks import RETRIED_STATUSES, NoUpstreamAnswer, UpstreamModelAnswer
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.llm.offload.worker_tasks import (
    MAX_TRANSLATE_IN_PROCESS,
    EmbeddingTranslation,
    InvalidProviderAnswer,
    translate_embedding_answer,
)
from paddock.llm.request_kind import GENERATE_OPERATION, ModelCall
from paddock.llm.wire.base import Headers, ResponseWriter, UpstreamError

_JSON = (b"content-type", b"application/json")
_EVENT_STREAM: Headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_UNSAFE_IN_HEADER = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_NAMED_TOOLS = 20
MAX_ARCHIVED_BYTES = 32 * 2**20
TRUNCATED_NOTE = f"the answer is longer than {MAX_ARCHIVED_BYTES} bytes; only its beginning was archived"


class AnswerInterrupted(Exception):
    """An answer broke off after part of it had been sent to the client."""


class ResponseSender:
    """Sends one answer to the client and records it in the exchange."""

    def __init__(
        self,
        settings: LlmConfig,
        archive: ExchangeArchive,
        recent_answers: RecentAnswers,
        exchange: Exchange,
        reply: ResponseWriter,
        started: float,
        settle: Callable[[], object],
        workers: OffloadWorkerPool,
    ) -> None:
        self._settings = settings
        self._workers = workers
        self._settle = settle
        self._archive = archive
        self._recent_answers = recent_answers
        self._exchange = exchange
        self._reply = reply
        self._started = started
        self._size = 0
        self._hosted_tools: Sequence[str] = ()
        self.archived = False
        """Whether the exchange has been archived already, as strict durability demands before the answer ends."""
        self.complete = False
        """Whether the client has the whole content of a stream, so that leaving before the last bytes is no loss."""

    async def send(self, call: ModelCall, upstream: UpstreamModelAnswer) -> None:
        """Send the answer. Raises `AnswerInterrupted` after a partial answer, `NoUpstreamAnswer` before any byte."""
        self._exchange.status = 200
        if upstream.prepared.model_request is not None:
            self._hosted_tools = upstream.prepared.model_request.hosted_tools
        if upstream.prepared.translated:
            if upstream.is_stream:
                await self._translate_stream(call, upstream)
            elif call.operation == GENERATE_OPERATION:
                await self._translate_whole(call, upstream)
            else:
                await self._translate_count_or_embedding(call, upstream)
        elif upstream.is_stream:
            await self._relay_stream(call, upstream)
        elif call.stream and not call.array:
            await self._send_whole_as_stream(call, upstream)
        else:
            await self._send_whole(
                upstream.response.status, headers_for_client(upstream.response.headers), upstream.body
            )

    async def _relay_stream(self, call: ModelCall, upstream: UpstreamModelAnswer) -> None:
        exchange, reply, response = self._exchange, self._reply, upstream.response
        watch = StreamEndDetector(call.format)
        now, started = time.perf_counter, self._started
        exchange.first_byte = now() - started
        await reply.start(response.status, [*headers_for_client(response.headers), *self._own_headers()])

        def take(piece: bytes) -> None:
            watch.feed(piece)
            self._record_piece(now() - started, piece)
            if watch.is_final:
                self._settle()

        def push(piece: bytes) -> bool:
            take(piece)
            return reply.push(piece)

        try:
            if reply.pushes:
                if not push(upstream.body):
                    await reply.wait_drained()
                await response.pipe_to(push, reply.wait_drained)
            else:
                piece = upstream.body
                while piece:
                    take(piece)
                    await reply.write(piece)
                    piece = await response.read_piece()
        except UpstreamError as error:
            if not watch.finished:
                raise AnswerInterrupted(str(error)) from None
        finally:
            self.complete = watch.finished and watch.ending is not StreamEnding.FAILED
        if not watch.finished:
            raise AnswerInterrupted("the provider ended the stream without a final event")
        if watch.ending is StreamEnding.FAILED:
            exchange.outcome, exchange.error = ExchangeOutcome.FAILED, "the provider reported an error in mid-stream"
        await self._end_stream()

    async def _translate_whole(self, call: ModelCall, upstream: UpstreamModelAnswer) -> None:
        provider, client = FORMATS[upstream.prepared.provider_request.format], FORMATS[call.format]
        try:
            answer = provider.read_answer(upstream.body)
        except BrokenModelStream as error:
            raise _unreadable_answer(upstream, error) from None
        request = upstream.prepared.model_request
        assert request is not None
        self._exchange.answered_model, answer.model = answer.model, call.model
        self._exchange.usage = answer.usage
        if call.stream:
            await self._send_known_events(call, client.new_stream_writer(request), stream_events_from_answer(answer))
        else:
            body = client.write_answer(answer, request)
            self._add_notes(request)
            await self._send_whole(200, [_JSON], body)

    async def _translate_count_or_embedding(self, call: ModelCall, upstream: UpstreamModelAnswer) -> None:
        """Send a translated token count or embeddings."""
        provider, embed = upstream.prepared.provider_request.format, upstream.prepared.embed_request
        try:
            if embed is None:
                body = FORMATS[call.format].write_token_count(FORMATS[provider].read_token_count(upstream.body))
            else:
                translation = EmbeddingTranslation(provider, call.format, call.model, embed)
                if len(upstream.body) > MAX_TRANSLATE_IN_PROCESS:
                    tokens, body = await self._workers.run_task("translate_embeddings", translation, upstream.body)
                else:
                    tokens, body = translate_embedding_answer(translation, upstream.body)
                self._exchange.usage = TokenUsage(tokens) if tokens is not None else None
        except (BrokenModelStream, InvalidProviderAnswer) as error:
            raise _unreadable_answer(upstream, error) from None
        await self._send_whole(200, [_JSON], body)

    async def send_estimate(self, call: ModelCall) -> None:
        """Send an estimate of a prompt's tokens, for providers that cannot count."""
        tokens = estimate_request_tokens(call.format, self._exchange.request)
        self._exchange.estimated = True
        body = FORMATS[call.format].write_token_count(tokens)
        await self._send_whole(200, [_JSON, (b"x-paddock-estimated", b"true")], body)

    async def _translate_stream(self, call: ModelCall, upstream: UpstreamModelAnswer) -> None:
        """Translate a stream: read events from the provider's bytes and write them in the client's format."""
        request = upstream.prepared.model_request
        assert request is not None
        reader, writer = (
            FORMATS[upstream.prepared.provider_request.format].new_stream_reader(),
            FORMATS[call.format].new_stream_writer(request),
        )
        piece, response = upstream.body, upstream.response
        ended = False
        pings = _PingTimer(self._reply, writer, self._settings.ping_every)
        try:
            while not ended:
                events = reader.feed(piece) if piece else reader.close()
                if events:
                    self.complete = ended = await self._send_events(call, upstream, writer, events, pings)
                elif not piece:
                    raise BrokenModelStream("the stream ended without a final event")
                if not ended:
                    piece = await response.read_piece()
        except (UpstreamError, BrokenModelStream) as error:
            if self._reply.started:
                raise AnswerInterrupted(str(error)) from None
            raise _unreadable_answer(upstream, error) from None
        finally:
            pings.stop()
        self._add_notes(request)
        await self._end_stream()

    async def _send_events(
        self,
        call: ModelCall,
        upstream: UpstreamModelAnswer,
        writer: ModelStreamWriter,
        events: list[StreamEvent],
        pings: _PingTimer,
    ) -> bool:
        """Send events, and return whether they finished the stream."""
        ended = False
        failure: ModelFailure | None = None
        pieces: list[bytes] = []
        for event in events:
            if isinstance(event, AnswerStreamStarted):
                self._exchange.answered_model, event.model = event.model, call.model
            elif isinstance(event, AnswerStreamFinished):
                ended = True
                self._exchange.usage = event.usage
            elif isinstance(event, AnswerStreamFailed):
                failure = event.failure
            pieces.append(writer.write(event))
            if ended or failure:
                break
        if failure is not None and not self._reply.started:
            raise NoUpstreamAnswer(failure, transient=failure.status in RETRIED_STATUSES)
        data = b"".join(pieces)
        if data:
            if not self._reply.started:
                self._exchange.first_byte = time.perf_counter() - self._started
                await self._reply.start(200, [*_stream_headers(call), *self._own_headers()])
                pings.start()
            self._record_piece(time.perf_counter() - self._started, data)
            pings.last = time.monotonic()
            if ended:
                self._settle()
            await self._reply.write(data)
        if failure is not None:
            raise AnswerInterrupted(failure.message)
        return ended

    async def _send_whole_as_stream(self, call: ModelCall, upstream: UpstreamModelAnswer) -> None:
        """Send a whole answer as a stream: some servers ignore `stream`, and the client still gets one."""
        format = FORMATS[call.format]
        try:
            answer = format.read_answer(upstream.body)
            body_sent = self._exchange.request
            request = await asyncio.to_thread(format.read_request, body_sent, model=call.model, stream=True)
        except BrokenModelStream as error:
            raise _unreadable_answer(upstream, error) from None
        self._exchange.usage = answer.usage
        await self._send_known_events(call, format.new_stream_writer(request), stream_events_from_answer(answer))

    async def _send_known_events(self, call: ModelCall, writer: ModelStreamWriter, events: list[StreamEvent]) -> None:
        """Send a stream of known events at once."""
        data = b"".join(map(writer.write, events))
        self._exchange.first_byte = time.perf_counter() - self._started
        self._exchange.response.append((self._exchange.first_byte, data))
        self._settle()
        await self._reply.start(200, [*_stream_headers(call), *self._own_headers()])
        await self._reply.write(data)
        await self._end_stream()

    async def _send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        exchange = self._exchange
        exchange.status = status
        exchange.first_byte = exchange.total = time.perf_counter() - self._started
        exchange.response.append((exchange.first_byte, body))
        self._recent_answers.add(exchange)
        self._settle()
        await self._archive_if_strict()
        await self._reply.send(status, [*headers, *self._own_headers()], body)

    async def _end_stream(self) -> None:
        if self._exchange.outcome is ExchangeOutcome.OK:
            self._recent_answers.add(self._exchange)
        try:
            await self._archive_if_strict()
        except Unavailable as error:
            raise AnswerInterrupted(error.message) from None
        await self._reply.end()

    def _record_piece(self, moment: float, piece: bytes) -> None:
        """Add a piece to the exchange. Streams are kept in memory until they end, so their size is bounded."""
        self._size += len(piece)
        if self._size <= MAX_ARCHIVED_BYTES:
            self._exchange.response.append((moment, piece))
        elif TRUNCATED_NOTE not in self._exchange.notes:
            self._exchange.notes.append(TRUNCATED_NOTE)

    async def _archive_if_strict(self) -> None:
        """Under strict durability, write the exchange to disk before the answer ends."""
        if self._archive.strict and self._exchange.operation == GENERATE_OPERATION:
            self._exchange.total = time.perf_counter() - self._started
            self._settle()
            await self._archive.write_now(self._exchange)
            self.archived = True

    def _own_headers(self) -> Headers:
        headers = [(b"x-paddock-exchange", self._exchange.id.encode())]
        if self._hosted_tools:
            names = [_UNSAFE_IN_HEADER.sub("?", name[:64]) for name in self._hosted_tools[:_MAX_NAMED_TOOLS]]
            headers.append((b"x-paddock-left-out-tools", ", ".join(names).encode()))
        return headers

    def _add_notes(self, request: ModelRequest) -> None:
        known = self._exchange.notes
        known += [text for text in request.notes if text not in known]


class _PingTimer:
    """Sends pings into a translated stream while the provider is silent."""

    def __init__(self, reply: ResponseWriter, writer: ModelStreamWriter, every: float) -> None:
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
        self._timer = asyncio.get_running_loop().call_later(seconds, self._send_if_quiet)

    def _send_if_quiet(self) -> None:
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
            pass  # The writer of the stream gets the same error.


def _stream_headers(call: ModelCall) -> Headers:
    return [_JSON] if call.array else _EVENT_STREAM


def _unreadable_answer(upstream: UpstreamModelAnswer, error: Exception) -> NoUpstreamAnswer:
    message = f"provider {upstream.route.provider.name} sent an invalid answer: {error}"
    return NoUpstreamAnswer(ModelFailure(502, message, error_kind_for_status(502)))
