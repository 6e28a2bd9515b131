"""Answer from recorded exchanges, for demos, tests and regression runs without a model.

Every response has the header `x-paddock-replay` with the id of the exchange it comes from.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from paddock.config.llm import ProviderConfig
from paddock.errors import ConfigError, InvalidInput
from paddock.llm.exchange import Exchange
from paddock.llm.formats.base import WireFormat
from paddock.llm.formats.neutral import ModelFailure, ModelRequest
from paddock.llm.formats.provider_errors import error_kind_for_status
from paddock.llm.formats.registry import FORMATS
from paddock.llm.offload.worker_tasks import is_large_body
from paddock.llm.providers.base import Provider, ProviderRequest
from paddock.llm.providers.local_response import SimulatedResponseChunk, SimulatedUpstreamResponse
from paddock.llm.providers.replay_response import chunk_delays, replay_response_chunks
from paddock.llm.replay.recorded_exchange_index import (
    RecordedExchangeEntry,
    RecordedExchangeIndex,
    digest_raw_request,
    parse_recorded_request,
)
from paddock.llm.replay.recording_files import (
    RecordedExchange,
    RecordingWriter,
    is_recordable,
    read_recording,
    to_recorded_exchange,
)
from paddock.llm.replay.request_matching import RequestFingerprint, RequestMatcher, describe_request_difference
from paddock.llm.wire.base import Headers, UpstreamBroken, UpstreamResponse, UpstreamTimeouts

REPLAY_HEADER = b"x-paddock-replay"
_TENANTS = 16
_REMEMBERED = 10_000
_LATEST_LISTING = 3600.0
"""Seconds an exchange may take: it is stored when it ends, but listed by its start."""
_NO_LIMIT = UpstreamTimeouts(stall=86_400.0)
"""Recorded delays are never treated as timeouts."""
_Value = TypeVar("_Value")


class ReplayMiss(Exception):
    """No recorded exchange matches; `model` is the model to ask instead, `reason` says why nothing matched."""

    def __init__(self, model: str, reason: str = "") -> None:
        super().__init__(reason or model)
        self.model = model
        self.reason = reason


class RecordingSource(Protocol):
    """A source of recorded exchanges."""

    async def list_ids(self, tenant: str, since: float) -> Sequence[str]:
        """Return ids of a tenant's exchanges that began at this time or later, oldest first."""

    async def fetch(self, tenant: str, id: str) -> RecordedExchange | None:
        """Return one exchange; `None` if it is gone or not recordable."""


class RecordingFileSource:
    """A recording file, shared by all tenants."""

    def __init__(self, path: Path, *, may_be_missing: bool = False, setting: str = "") -> None:
        self.path = path
        self._writer = RecordingWriter(path)
        is_new = may_be_missing and not path.exists()
        self._exchanges = {} if is_new else {each.id: each for each in _with_unique_ids(read_recording(path, setting))}

    async def list_ids(self, tenant: str, since: float) -> Sequence[str]:
        return list(self._exchanges)

    async def fetch(self, tenant: str, id: str) -> RecordedExchange | None:
        return self._exchanges.get(id)

    async def add(self, recorded: RecordedExchange) -> None:
        await asyncio.to_thread(self._writer.add, recorded)
        self._exchanges[recorded.id] = recorded


def _with_unique_ids(exchanges: list[RecordedExchange]) -> Iterator[RecordedExchange]:
    """Yield exchanges, renaming duplicate ids: recordings may be concatenated by hand."""
    seen: set[str] = set()
    for each in exchanges:
        if each.id in seen:
            each = replace(each, id=f"{each.id}-{len(seen)}")
        seen.add(each.id)
        yield each


class ReplayProvider(Provider):
    """Answers in every format, with the recorded bytes if the format is the same."""

    kind = "replay"

    def __init__(
        self,
        name: str,
        source: RecordingSource,
        *,
        match: Literal["exact", "sequence"] = "exact",
        timing: Literal["instant", "recorded"] = "instant",
        miss: str | None = None,
    ) -> None:
        super().__init__(name, tuple(FORMATS))
        self.source = source
        self._match = match
        self._timing = timing
        self._miss = miss
        self._matcher = RequestMatcher()
        self._indexes: OrderedDict[str, RecordedExchangeIndex] = OrderedDict()
        self._served_counts: OrderedDict[bytes, int] = OrderedDict()
        self._assigned_conversations: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = asyncio.Lock()

    async def send(self, provider_request: ProviderRequest) -> UpstreamResponse:
        form = FORMATS[provider_request.format]
        try:
            request = await self._read_request(form, provider_request)
        except InvalidInput as error:
            return _failure_response(form, ModelFailure(400, error.message, error_kind_for_status(400)))
        fingerprint = await self._fingerprint(request, provider_request.body) if request is not None else None
        recorded, reason = await self._find_recorded(provider_request, fingerprint)
        if recorded is None:
            return await self._answer_miss(form, provider_request, request, fingerprint, reason)
        headers: Headers = [(b"content-type", b"application/json"), (REPLAY_HEADER, _header_value(recorded.id))]
        chunks, is_stream = replay_response_chunks(form, provider_request, request, recorded)
        if is_stream and not provider_request.array:
            headers[0] = (b"content-type", b"text/event-stream; charset=utf-8")
        waits = chunk_delays(chunks) if self._timing == "recorded" else [0.0] * len(chunks)
        timeline = [
            SimulatedResponseChunk(chunk.data, wait, chunk.breaks) for wait, chunk in zip(waits, chunks, strict=True)
        ]
        if timeline and timeline[0].delay:
            # The head comes with the first bytes, as in the recording.
            await asyncio.sleep(timeline[0].delay)
            timeline[0] = SimulatedResponseChunk(timeline[0].data, 0.0, timeline[0].breaks)
        if timeline and timeline[0].breaks:
            raise UpstreamBroken("the recorded answer broke off before it began")
        return SimulatedUpstreamResponse(recorded.status, headers, timeline, _NO_LIMIT)

    async def record(self, exchange: Exchange) -> bool:
        """Add an exchange of a live model to the recording, and return whether it was recorded.

        Without a file there is nothing to do: the archive has the exchange already. Raises `OSError`.
        """
        if not is_recordable(exchange) or not isinstance(self.source, RecordingFileSource):
            return False
        recorded = to_recorded_exchange(exchange)
        await self.source.add(recorded)
        async with self._lock:
            for index in self._indexes.values():
                index.add(recorded)
        return True

    async def _read_request(self, form: WireFormat, provider_request: ProviderRequest) -> ModelRequest | None:
        if is_large_body(provider_request.body):
            return await asyncio.to_thread(self._parse_request, form, provider_request)
        return self._parse_request(form, provider_request)

    async def _fingerprint(self, request: ModelRequest, body: bytes) -> RequestFingerprint:
        if not is_large_body(body):
            return self._matcher.fingerprint(request)
        return await asyncio.to_thread(self._matcher.fingerprint, request)

    def _parse_request(self, form: WireFormat, provider_request: ProviderRequest) -> ModelRequest | None:
        if provider_request.operation != "generate":
            return None
        request = form.read_request(provider_request.body, model=provider_request.model, stream=provider_request.stream)
        if provider_request.array:
            request.extra["gemini_array"] = True
        return request

    async def _find_recorded(
        self, provider_request: ProviderRequest, fingerprint: RequestFingerprint | None
    ) -> tuple[RecordedExchange | None, str]:
        tenant = "" if isinstance(self.source, RecordingFileSource) else provider_request.caller.tenant
        for is_fresh in (False, True):
            index = await self._load_index(tenant, refresh=is_fresh)
            entries, reason = self._candidates(index, provider_request, fingerprint)
            for _ in range(len(entries)):
                recorded = await self.source.fetch(tenant, self._next_entry(provider_request, entries).id)
                if recorded is not None:
                    return recorded, ""
        return None, reason

    async def _load_index(self, tenant: str, *, refresh: bool) -> RecordedExchangeIndex:
        async with self._lock:
            index = self._indexes.get(tenant)
            if index is not None:
                self._indexes.move_to_end(tenant)
                if not refresh:
                    return index
            else:
                index = self._indexes[tenant] = RecordedExchangeIndex(self._matcher)
                while len(self._indexes) > _TENANTS:
                    self._indexes.popitem(last=False)
            for id in await self.source.list_ids(tenant, max(0.0, index.newest - _LATEST_LISTING)):
                if id not in index:
                    recorded = await self.source.fetch(tenant, id)
                    if recorded is not None:
                        index.add(recorded)
                    else:
                        index.mark_known(id)
                    # Let other tasks run between exchanges.
                    await asyncio.sleep(0)
            return index

    def _candidates(
        self, index: RecordedExchangeIndex, provider_request: ProviderRequest, fingerprint: RequestFingerprint | None
    ) -> tuple[list[RecordedExchangeEntry], str]:
        if fingerprint is None:
            entries = index.find_same(
                digest_raw_request(provider_request.format, provider_request.operation, provider_request.body)
            )
            return entries, f"no recorded {provider_request.operation} asks for the same"
        if self._match == "exact":
            entries = index.find_same(fingerprint.key)
            reason = "no recorded request asks for the same"
            # A recorded failure is used only when no success is recorded.
            entries = [entry for entry in entries if entry.succeeded] or entries
        else:
            entries, reason = self._sequence_candidates(index, provider_request, fingerprint)
        entries = [entry for entry in entries if entry.format == provider_request.format] or entries
        return [entry for entry in entries if entry.stream == provider_request.stream] or entries, reason

    def _sequence_candidates(
        self, index: RecordedExchangeIndex, provider_request: ProviderRequest, fingerprint: RequestFingerprint
    ) -> tuple[list[RecordedExchangeEntry], str]:
        opening = fingerprint.opening
        if opening not in index.conversations:
            caller_key = _caller_digest(provider_request, opening)
            assigned = self._assigned_conversations.get(caller_key)
            if assigned is None or assigned not in index.conversations:
                similar = [
                    known for known, thread in index.conversations.items() if thread.has_tools == fingerprint.has_tools
                ]
                if not similar:
                    with_tools = "with" if fingerprint.has_tools else "without"
                    return [], f"no conversation {with_tools} tools is recorded"
                assigned_elsewhere = set(self._assigned_conversations.values())
                assigned = next(
                    (known for known in similar if known not in assigned_elsewhere),
                    similar[len(self._assigned_conversations) % len(similar)],
                )
                _remember(self._assigned_conversations, caller_key, assigned)
            opening = assigned
        thread = index.conversations[opening]
        known = thread.entries.get(fingerprint.answers, [])
        return known, f"the recorded conversation has no answer number {fingerprint.answers + 1}"

    def _next_entry(
        self, provider_request: ProviderRequest, entries: list[RecordedExchangeEntry]
    ) -> RecordedExchangeEntry:
        """Return the next entry for this caller: several matches are served in turn, round-robin."""
        if len(entries) == 1:
            return entries[0]
        caller_key = _caller_digest(provider_request, entries[0].id.encode())
        count = self._served_counts.get(caller_key, 0)
        _remember(self._served_counts, caller_key, count + 1)
        return entries[count % len(entries)]

    async def _answer_miss(
        self,
        form: WireFormat,
        provider_request: ProviderRequest,
        request: ModelRequest | None,
        fingerprint: RequestFingerprint | None,
        reason: str,
    ) -> UpstreamResponse:
        if fingerprint is not None and request is not None and self._match == "exact":
            reason = await self._explain_miss(provider_request, request, fingerprint, reason)
        if self._miss is not None:
            raise ReplayMiss(self._miss, reason)
        message = f"replay {self.name}: {reason}; record it, or name a live model in the provider's miss"
        return _failure_response(form, ModelFailure(404, message, error_kind_for_status(404), "replay_miss"))

    async def _explain_miss(
        self, provider_request: ProviderRequest, request: ModelRequest, fingerprint: RequestFingerprint, reason: str
    ) -> str:
        tenant = "" if isinstance(self.source, RecordingFileSource) else provider_request.caller.tenant
        index = await self._load_index(tenant, refresh=False)
        nearest = index.find_nearest(fingerprint)
        recorded = await self.source.fetch(tenant, nearest) if nearest is not None else None
        old = parse_recorded_request(recorded) if recorded is not None else None
        if recorded is None or old is None:
            return f"{reason}; no conversation is recorded yet" if nearest is None else reason
        if self._miss is not None and isinstance(self.source, RecordingFileSource):
            # The file collects live exchanges of all tenants, so content of one must not be shown to another.
            return f"{reason}; the nearest is {recorded.id}"
        return f"{reason}; the nearest is {recorded.id}, where {describe_request_difference(request, old)}"


def _caller_digest(provider_request: ProviderRequest, content: bytes) -> bytes:
    caller_key = "\0".join(
        (provider_request.caller.tenant, provider_request.caller.key_id, provider_request.conversation or "")
    ).encode(errors="replace")
    return hashlib.blake2b(caller_key + b"\0" + content, digest_size=16).digest()


def _remember(memory: OrderedDict[bytes, _Value], key: bytes, value: _Value) -> None:
    memory.pop(key, None)
    memory[key] = value
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)


def _header_value(id: str) -> bytes:
    return "".join(character if character.isascii() and character.isprintable() else "?" for character in id).encode()


def _failure_response(form: WireFormat, failure: ModelFailure) -> UpstreamResponse:
    headers: Headers = [(b"content-type", b"application/json"), (REPLAY_HEADER, b"none")]
    return SimulatedUpstreamResponse(failure.status, headers, [SimulatedResponseChunk(form.write_failure(failure))])


def new_replay_provider(name: str, config: ProviderConfig, source: RecordingSource | None = None) -> ReplayProvider:
    """Create a replay provider from its configuration. Raises `ConfigError` when the recording cannot be read.

    With `miss`, a missing recording file is created from the misses. `source` is the archive.
    """
    if config.file is not None:
        setting = f"llm.providers.{name}.file"
        source = RecordingFileSource(config.file, may_be_missing=config.miss is not None, setting=setting)
    if source is None:
        raise ConfigError(f"llm.providers.{name}: there is no archive to replay from; give a file")
    return ReplayProvider(name, source, match=config.match, timing=config.timing, miss=config.miss)
