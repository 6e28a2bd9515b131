"""Records of calls: taken without delay on the way of a call, written in batches."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import structlog
from msgspec import Raw

from paddock.errors import Forbidden, PaddockError, QuotaExceeded, TooLarge
from paddock.events.event_log import EventLog
from paddock.events.event_rate import EventRateLimit
from paddock.mcp.gateway.envelopes import raw_object, raw_text
from paddock.mcp.gateway.limits import CALL_METHODS
from paddock.mcp.gateway.server_directory import DeclaredServer
from paddock.mcp.protocol import CallContext, JsonRpcMessage, McpEndpoint
from paddock.mcp.protocol.revisions import INPUT_REQUIRED
from paddock.model.events import EventType, run_event_stream, sandbox_event_stream
from paddock.model.mcp_records import McpCallOutcome, McpCallRecord
from paddock.store.event_store import NewEvent
from paddock.store.mcp_call_store import McpCallStore, OpenStreams

FLUSH_SECONDS = 0.1
"""Seconds between writes; a crash loses at most that much."""
RETRY_SECONDS = 1.0
PRUNE_SECONDS = 600.0
MAX_BATCH = 500
MAX_WAITING = 20_000
MAX_WAITING_BYTES = 64 * 2**20
MAX_EVENTS_PER_SECOND = 50
"""Events of one sandbox or run."""
MAX_FULL_RECORDS = 5000
"""Records of one sandbox with arguments and results; a hostile program could fill the disk otherwise."""
MAX_RECORDS = 100_000
"""Records of one sandbox; further calls are only counted."""
MAX_COUNTED_SANDBOXES = 10_000
MASK_MARGIN = 4096
"""Bytes kept beyond the cut until secrets are masked: a secret may begin before the cut and end after it."""
MAX_TARGET = 500
MAX_ERROR = 1000
MAX_COUNTED_BYTES = 256 * 2**10
"""Larger results are not decoded; their tokens are estimated from their size."""
BYTES_PER_TOKEN = 4
CUT = "…"
TASK_LABEL = "(servers of tasks)"
log = structlog.get_logger()


class _Content(msgspec.Struct):
    text: str = ""


class _CallResult(msgspec.Struct):
    content: list[_Content] = []
    isError: bool = False  # noqa: N815
    resultType: str = ""  # noqa: N815


_RESULT = msgspec.json.Decoder(_CallResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecord:
    """A record of a call, before secrets are masked."""

    server: str
    context: CallContext
    method: str
    target: str
    started_at: datetime
    duration: float
    outcome: McpCallOutcome
    error: str | None
    arguments: bytes
    result: bytes
    request_size: int
    response_size: int
    tokens: int


class CallRecorder:
    """Writes records of calls and their events. Open it with `open`, and `close` it."""

    def __init__(
        self,
        store: McpCallStore | None,
        events: EventLog | None,
        *,
        record_size: int,
        keep: float | None,
        mask: Callable[[str], str] = str,
        export: Callable[[McpCallRecord], None] | None = None,
        every: float = FLUSH_SECONDS,
    ) -> None:
        self._store = store
        self._events = events
        self.record_size = record_size
        self._keep = keep
        self.mask = mask
        """Masks secrets in texts; may be replaced when the secrets change."""
        self._export = export
        self._every = every
        self._waiting: deque[tuple[PendingRecord, str]] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._has_records = asyncio.Event()
        self._writing = asyncio.Lock()
        self._failing = False
        self._of_sandbox: Counter[str] = Counter()
        self._event_rate = EventRateLimit(MAX_EVENTS_PER_SECOND)
        self._tasks: list[asyncio.Task[None]] = []
        self.outcomes: Counter[tuple[str, McpCallOutcome]] = Counter()
        """Calls since the start, by server and outcome."""
        self.seconds: dict[str, float] = {}
        """Seconds of calls since the start, by server."""

    def open(self) -> None:
        """Start to write."""
        for work in (self._flush_periodically(), self._prune_periodically()):
            self._tasks.append(asyncio.create_task(work, name="MCP call recorder"))

    async def close(self) -> None:
        """Write what is left. The store must still be open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.flush()
        if self._waiting:
            log.error("could not write MCP calls; records lost", count=len(self._waiting))

    def record(self, pending: PendingRecord, label: str) -> None:
        """Take a record; it is on disk after the next write. `label` is the server's name in metrics."""
        self.outcomes[label, pending.outcome] += 1
        self.seconds[label] = self.seconds.get(label, 0.0) + pending.duration
        if self._store is None:
            return
        if pending.context.sandbox is not None:
            count = self._count_of_sandbox(pending.context.sandbox)
            if count > MAX_RECORDS:
                return
            if count > MAX_FULL_RECORDS:
                pending = replace(pending, arguments=b"", result=b"")
        while self._waiting and (
            len(self._waiting) >= MAX_WAITING or self._waiting_bytes + _size(pending) > MAX_WAITING_BYTES
        ):
            self._waiting_bytes -= _size(self._waiting.popleft()[0])
            self._dropped += 1
        self._waiting.append((pending, f"mcp_{secrets.token_hex(12)}"))
        self._waiting_bytes += _size(pending)
        self._has_records.set()

    def _count_of_sandbox(self, sandbox_id: str) -> int:
        if len(self._of_sandbox) > MAX_COUNTED_SANDBOXES:
            self._of_sandbox.clear()  # Most have ended; the others get a little more.
        self._of_sandbox[sandbox_id] += 1
        return self._of_sandbox[sandbox_id]

    async def flush(self) -> None:
        """Write all records taken so far; they stay waiting if the database fails."""
        async with self._writing:
            while self._waiting and self._store is not None:
                batch = [self._waiting[i] for i in range(min(len(self._waiting), MAX_BATCH))]
                # Masking large texts takes too long for the event loop.
                records = await asyncio.to_thread(self._finish, batch)
                try:
                    await self._write(records)
                except PaddockError as error:
                    if not self._failing:
                        log.error("cannot write MCP calls; will retry", error=error.message)
                    self._failing = True
                    return
                self._failing = False
                written = {record_id for _, record_id in batch}
                while self._waiting and self._waiting[0][1] in written:
                    self._waiting_bytes -= _size(self._waiting.popleft()[0])
            if self._dropped:
                log.warning("too many MCP calls; records lost", count=self._dropped)
                self._dropped = 0

    def _finish(self, batch: Sequence[tuple[PendingRecord, str]]) -> list[McpCallRecord]:
        return [self._finish_one(pending, record_id) for pending, record_id in batch]

    def _finish_one(self, pending: PendingRecord, record_id: str) -> McpCallRecord:
        context = pending.context
        return McpCallRecord(
            id=record_id,
            tenant=str(context.tenant),
            caller=context.caller,
            caller_name=context.names[0] if context.names else None,
            agent=context.agent,
            origin=context.origin,
            server=pending.server,
            method=pending.method,
            target=self._masked(pending.target, MAX_TARGET),
            sandbox=context.sandbox,
            run=context.run,
            session=context.session,
            started_at=pending.started_at,
            duration=pending.duration,
            outcome=pending.outcome,
            error=None if pending.error is None else self._masked(pending.error, MAX_ERROR),
            arguments=self._masked(pending.arguments.decode(errors="replace"), self.record_size),
            result=self._masked(pending.result.decode(errors="replace"), self.record_size),
            request_size=pending.request_size,
            response_size=pending.response_size,
            tokens=pending.tokens,
        )

    def _masked(self, text: str, limit: int) -> str:
        masked = self.mask(text).encode(errors="replace").decode().replace("\0", "?").replace("\\u0000", "?")
        return masked if len(masked) <= limit else masked[:limit] + CUT

    async def _write(self, records: Sequence[McpCallRecord]) -> None:
        assert self._store is not None
        if self._events is None:
            await self._store.insert(records)
        else:
            work = self._store.insert_work(records)
            published = [record for record in records if record.sandbox or record.run]
            await self._events.write_with_events(work, lambda alive: self._events_of(published, alive))
        if self._export is not None:
            for record in records:
                self._export(record)

    def _events_of(self, records: Sequence[McpCallRecord], alive: OpenStreams) -> list[NewEvent]:
        found = []
        for record in records:
            # No event may follow the one that ends a stream, and none may reach another tenant's.
            for stream, is_open in (
                (sandbox_event_stream(record.sandbox or ""), (record.sandbox, record.tenant) in alive.sandboxes),
                (run_event_stream(record.run or ""), (record.run, record.tenant) in alive.runs),
            ):
                if is_open and self._event_rate.may_publish(stream):
                    found.append(NewEvent(stream, EventType.MCP_CALLED, _event_data(record), record.tenant))
        return found

    async def _flush_periodically(self) -> None:
        while True:
            await self._has_records.wait()
            await asyncio.sleep(RETRY_SECONDS if self._failing else self._every)
            self._has_records.clear()
            try:
                await self.flush()
            except Exception as error:
                log.error("cannot write MCP calls; will retry", error=repr(error))
                self._failing = True
            if self._waiting:
                self._has_records.set()

    async def _prune_periodically(self) -> None:
        while self._keep is not None and self._store is not None:
            try:
                await self._store.prune(datetime.now(UTC) - timedelta(seconds=self._keep))
            except PaddockError as error:
                log.warning("cannot delete old MCP calls; will retry", error=error.message)
            await asyncio.sleep(PRUNE_SECONDS)


class RecordedEndpoint:
    """Records calls, and how they ended."""

    def __init__(self, inner: McpEndpoint, declared: DeclaredServer, recorder: CallRecorder) -> None:
        self._inner = inner
        self._server = declared.name
        # Tasks may name any number of servers.
        self._label = TASK_LABEL if declared.source == "sandbox" else declared.name
        self._recorder = recorder

    def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        if request.method in CALL_METHODS:
            return self._recorded(request, context)
        return self._inner.exchange(request, context)

    async def _recorded(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        started_at, started = datetime.now(UTC), time.perf_counter()
        outcome, error = McpCallOutcome.CANCELLED, None
        response: JsonRpcMessage | None = None
        size = 0
        try:
            async with aclosing(self._inner.exchange(request, context)) as messages:
                async for message in messages:
                    if message.is_response:
                        response = message
                    elif isinstance(message.params, Raw):
                        size += len(memoryview(message.params))
                    yield message
        except PaddockError as refused:
            is_refusal = isinstance(refused, (Forbidden, QuotaExceeded, TooLarge))
            outcome = McpCallOutcome.REFUSED if is_refusal else McpCallOutcome.ERROR
            error = refused.message
            raise
        finally:
            tokens = 0
            if response is not None:
                outcome, error, tokens = _judge(response)
            target, arguments = _target_and_arguments(request)
            content = _content(response)
            limit = self._recorder.record_size + MASK_MARGIN
            self._recorder.record(
                PendingRecord(
                    server=self._server,
                    context=context,
                    method=str(request.method),
                    target=target[: MAX_TARGET + MASK_MARGIN],
                    started_at=started_at,
                    duration=time.perf_counter() - started,
                    outcome=outcome,
                    error=error,
                    arguments=memoryview(arguments)[:limit].tobytes(),
                    result=memoryview(content)[:limit].tobytes(),
                    request_size=len(memoryview(request.params)) if isinstance(request.params, Raw) else 0,
                    response_size=len(memoryview(content)) + size,
                    tokens=tokens,
                ),
                self._label,
            )


def _target_and_arguments(request: JsonRpcMessage) -> tuple[str, Raw]:
    try:
        params = raw_object(request.params, "params")
    except PaddockError:
        params = {}
    target = raw_text(params.get("uri" if request.method == "resources/read" else "name", Raw(b"null")))
    return target or "", params.get("arguments", Raw(b""))


def _content(response: JsonRpcMessage | None) -> Raw:
    for part in () if response is None else (response.result, response.error):
        if isinstance(part, Raw):
            return part
    return Raw(b"")


def _judge(response: JsonRpcMessage) -> tuple[McpCallOutcome, str | None, int]:
    """Return the outcome, the error, and the estimated tokens of a response."""
    if not isinstance(response.result, Raw):
        error = response.error_object()
        return McpCallOutcome.ERROR, str(error.get("message", ""))[: MAX_ERROR + MASK_MARGIN], 0
    size = len(memoryview(response.result))
    if size > MAX_COUNTED_BYTES:
        return McpCallOutcome.OK, None, size // BYTES_PER_TOKEN
    try:
        result = _RESULT.decode(response.result)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return McpCallOutcome.OK, None, size // BYTES_PER_TOKEN
    text = sum(len(part.text.encode(errors="replace")) for part in result.content)
    tokens = -(-text // BYTES_PER_TOKEN)
    if result.resultType == INPUT_REQUIRED:
        return McpCallOutcome.INPUT_REQUIRED, None, tokens
    if result.isError:
        return McpCallOutcome.TOOL_ERROR, None, tokens
    return McpCallOutcome.OK, None, tokens


def _event_data(record: McpCallRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "server": record.server,
        "method": record.method,
        "target": record.target,
        "outcome": record.outcome.value,
        "seconds": round(record.duration, 3),
        "tokens": record.tokens,
    }


def _size(pending: PendingRecord) -> int:
    return len(pending.arguments) + len(pending.result) + 500
