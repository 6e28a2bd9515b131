"""Answers from recorded exchanges: the bundled demo, tests and a user's regressions run on it without a model.

Every answer has the header `x-paddock-replay` with the id of the exchange it comes from.
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
from paddock.llm.formats.base import Format
from paddock.llm.formats.failures import kind_of
from paddock.llm.formats.registry import FORMATS
from paddock.llm.likeness import Likener, Likeness, difference
from paddock.llm.neutral import Failure, Request
from paddock.llm.offload.tasks import is_large
from paddock.llm.providers.base import Answered, Ask, Provider
from paddock.llm.providers.local import Beat, LocalAnswered
from paddock.llm.providers.retold import retold, timed
from paddock.llm.recorded_index import Entry, Index, raw_key, read_recorded
from paddock.llm.recording import Recorded, RecordingWriter, is_recordable, read_recording, recorded_of
from paddock.llm.wire.base import Broken, Headers, Timeouts

LABEL = b"x-paddock-replay"
_TENANTS = 16
_REMEMBERED = 10_000
_LATE = 3600.0
"""Seconds an exchange may have taken: it is stored when it ends, but listed by when it began."""
_NO_LIMIT = Timeouts(stall=86_400.0)
"""What took that long once may take that long again."""
_Value = TypeVar("_Value")


class Miss(Exception):
    """No recorded exchange answers this; `model` is who to ask instead, and `reason` what was missing."""

    def __init__(self, model: str, reason: str = "") -> None:
        super().__init__(reason or model)
        self.model = model
        self.reason = reason


class Source(Protocol):
    """Where recorded exchanges are."""

    async def ids(self, tenant: str, since: float) -> Sequence[str]:
        """Ids of a tenant's exchanges that began at this time or later, oldest first."""

    async def fetch(self, tenant: str, id: str) -> Recorded | None:
        """One of them; `None` when it is gone, or was never meant to be answered from."""


class FileSource:
    """A recording, read when it is first needed. It serves every tenant alike."""

    def __init__(self, path: Path, *, may_be_missing: bool = False, setting: str = "") -> None:
        self.path = path
        self._writer = RecordingWriter(path)
        is_new = may_be_missing and not path.exists()
        self._exchanges = {} if is_new else {each.id: each for each in _numbered(read_recording(path, setting))}

    async def ids(self, tenant: str, since: float) -> Sequence[str]:
        return list(self._exchanges)

    async def fetch(self, tenant: str, id: str) -> Recorded | None:
        return self._exchanges.get(id)

    async def add(self, recorded: Recorded) -> None:
        await asyncio.to_thread(self._writer.add, recorded)
        self._exchanges[recorded.id] = recorded


def _numbered(exchanges: list[Recorded]) -> Iterator[Recorded]:
    """The exchanges, those whose id was used before under another: recordings may be put together by hand."""
    seen: set[str] = set()
    for each in exchanges:
        if each.id in seen:
            each = replace(each, id=f"{each.id}-{len(seen)}")
        seen.add(each.id)
        yield each


class ReplayProvider(Provider):
    """Answers in every format, in the recorded bytes where the format is the same."""

    kind = "replay"

    def __init__(
        self,
        name: str,
        source: Source,
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
        self._likener = Likener()
        self._indexes: OrderedDict[str, Index] = OrderedDict()
        self._asked: OrderedDict[bytes, int] = OrderedDict()
        self._threads: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = asyncio.Lock()

    async def send(self, ask: Ask) -> Answered:
        form = FORMATS[ask.format]
        try:
            request = await self._read(form, ask)
        except InvalidInput as error:
            return _failed(form, Failure(400, error.message, kind_of(400)))
        likeness = await self._likeness(request, ask.body) if request is not None else None
        recorded, reason = await self._find(ask, likeness)
        if recorded is None:
            return await self._missed(form, ask, request, likeness, reason)
        headers: Headers = [(b"content-type", b"application/json"), (LABEL, _header(recorded.id))]
        beats, is_stream = retold(form, ask, request, recorded)
        if is_stream and not ask.array:
            headers[0] = (b"content-type", b"text/event-stream; charset=utf-8")
        waits = timed(beats) if self._timing == "recorded" else [0.0] * len(beats)
        timeline = [Beat(beat.data, wait, beat.breaks) for wait, beat in zip(waits, beats, strict=True)]
        if timeline and timeline[0].wait:
            # The head comes with the first bytes, as it did.
            await asyncio.sleep(timeline[0].wait)
            timeline[0] = Beat(timeline[0].data, 0.0, timeline[0].breaks)
        if timeline and timeline[0].breaks:
            raise Broken("the recorded answer broke off before it began")
        return LocalAnswered(recorded.status, headers, timeline, _NO_LIMIT)

    async def record(self, exchange: Exchange) -> bool:
        """Add an exchange that a live model answered to the recording; whether it was worth it.

        Without a file, the archive has it already. Raises `OSError` when the disk does.
        """
        if not is_recordable(exchange) or not isinstance(self.source, FileSource):
            return False
        recorded = recorded_of(exchange)
        await self.source.add(recorded)
        async with self._lock:
            for index in self._indexes.values():
                index.add(recorded)
        return True

    async def _read(self, form: Format, ask: Ask) -> Request | None:
        if is_large(ask.body):
            return await asyncio.to_thread(self._request, form, ask)
        return self._request(form, ask)

    async def _likeness(self, request: Request, body: bytes) -> Likeness:
        if not is_large(body):
            return self._likener.of(request)
        return await asyncio.to_thread(self._likener.of, request)

    def _request(self, form: Format, ask: Ask) -> Request | None:
        if ask.operation != "generate":
            return None
        request = form.read_request(ask.body, model=ask.model, stream=ask.stream)
        if ask.array:
            request.extra["gemini_array"] = True
        return request

    async def _find(self, ask: Ask, likeness: Likeness | None) -> tuple[Recorded | None, str]:
        tenant = "" if isinstance(self.source, FileSource) else ask.caller.tenant
        for is_fresh in (False, True):
            index = await self._index(tenant, refresh=is_fresh)
            entries, reason = self._candidates(index, ask, likeness)
            for _ in range(len(entries)):
                recorded = await self.source.fetch(tenant, self._next(ask, entries).id)
                if recorded is not None:
                    return recorded, ""
        return None, reason

    async def _index(self, tenant: str, *, refresh: bool) -> Index:
        async with self._lock:
            index = self._indexes.get(tenant)
            if index is not None:
                self._indexes.move_to_end(tenant)
                if not refresh:
                    return index
            else:
                index = self._indexes[tenant] = Index(self._likener)
                while len(self._indexes) > _TENANTS:
                    self._indexes.popitem(last=False)
            for id in await self.source.ids(tenant, max(0.0, index.newest - _LATE)):
                if id not in index:
                    recorded = await self.source.fetch(tenant, id)
                    if recorded is not None:
                        index.add(recorded)
                    else:
                        index.skip(id)
                    # Reading much at once must not keep others waiting.
                    await asyncio.sleep(0)
            return index

    def _candidates(self, index: Index, ask: Ask, likeness: Likeness | None) -> tuple[list[Entry], str]:
        if likeness is None:
            entries = index.same(raw_key(ask.format, ask.operation, ask.body))
            return entries, f"no recorded {ask.operation} asks for the same"
        if self._match == "exact":
            entries = index.same(likeness.key)
            reason = "no recorded request asks for the same"
            # What failed in passing is only told when nothing better is known.
            entries = [entry for entry in entries if entry.succeeded] or entries
        else:
            entries, reason = self._in_sequence(index, ask, likeness)
        entries = [entry for entry in entries if entry.format == ask.format] or entries
        return [entry for entry in entries if entry.stream == ask.stream] or entries, reason

    def _in_sequence(self, index: Index, ask: Ask, likeness: Likeness) -> tuple[list[Entry], str]:
        opening = likeness.opening
        if opening not in index.threads:
            whose = _identity(ask, opening)
            assigned = self._threads.get(whose)
            if assigned is None or assigned not in index.threads:
                kin = [known for known, thread in index.threads.items() if thread.has_tools == likeness.has_tools]
                if not kin:
                    with_tools = "with" if likeness.has_tools else "without"
                    return [], f"no conversation {with_tools} tools is recorded"
                taken = set(self._threads.values())
                assigned = next((known for known in kin if known not in taken), kin[len(self._threads) % len(kin)])
                _remember(self._threads, whose, assigned)
            opening = assigned
        thread = index.threads[opening]
        known = thread.entries.get(likeness.answers, [])
        return known, f"the recorded conversation has no answer number {likeness.answers + 1}"

    def _next(self, ask: Ask, entries: list[Entry]) -> Entry:
        """The entry whose turn it is for whoever asks: of several, each is told once before the first again."""
        if len(entries) == 1:
            return entries[0]
        whose = _identity(ask, entries[0].id.encode())
        count = self._asked.get(whose, 0)
        _remember(self._asked, whose, count + 1)
        return entries[count % len(entries)]

    async def _missed(
        self, form: Format, ask: Ask, request: Request | None, likeness: Likeness | None, reason: str
    ) -> Answered:
        if likeness is not None and request is not None and self._match == "exact":
            reason = await self._explained(ask, request, likeness, reason)
        if self._miss is not None:
            raise Miss(self._miss, reason)
        message = f"replay {self.name}: {reason}; record it, or name a live model in the provider's miss"
        return _failed(form, Failure(404, message, kind_of(404), "replay_miss"))

    async def _explained(self, ask: Ask, request: Request, likeness: Likeness, reason: str) -> str:
        tenant = "" if isinstance(self.source, FileSource) else ask.caller.tenant
        index = await self._index(tenant, refresh=False)
        nearest = index.nearest(likeness)
        recorded = await self.source.fetch(tenant, nearest) if nearest is not None else None
        old = read_recorded(recorded) if recorded is not None else None
        if recorded is None or old is None:
            return f"{reason}; no conversation is recorded yet" if nearest is None else reason
        if self._miss is not None and isinstance(self.source, FileSource):
            # Live exchanges of any tenant are added to the file, and nobody is told what another said.
            return f"{reason}; the nearest is {recorded.id}"
        return f"{reason}; the nearest is {recorded.id}, where {difference(request, old)}"


def _identity(ask: Ask, what: bytes) -> bytes:
    whose = "\0".join((ask.caller.tenant, ask.caller.key_id, ask.conversation or "")).encode(errors="replace")
    return hashlib.blake2b(whose + b"\0" + what, digest_size=16).digest()


def _remember(memory: OrderedDict[bytes, _Value], key: bytes, value: _Value) -> None:
    memory.pop(key, None)
    memory[key] = value
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)


def _header(id: str) -> bytes:
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in id).encode()


def _failed(form: Format, failure: Failure) -> Answered:
    headers: Headers = [(b"content-type", b"application/json"), (LABEL, b"none")]
    return LocalAnswered(failure.status, headers, [Beat(form.write_failure(failure))])


def make_replay(name: str, config: ProviderConfig, source: Source | None = None) -> ReplayProvider:
    """The provider that a configuration describes. Raises `ConfigError` when its recording cannot be read.

    With `miss`, a recording that is not there yet begins with what is missed. `source` is the archive.
    """
    if config.file is not None:
        setting = f"llm.providers.{name}.file"
        source = FileSource(config.file, may_be_missing=config.miss is not None, setting=setting)
    if source is None:
        raise ConfigError(f"llm.providers.{name}: there is no archive to replay from; give a file")
    return ReplayProvider(name, source, match=config.match, timing=config.timing, miss=config.miss)
