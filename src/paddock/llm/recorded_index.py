"""Finds recorded exchanges: those that ask for the same as a request, and the next one of a conversation."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from paddock.errors import InvalidInput
from paddock.llm.formats.registry import FORMATS
from paddock.llm.likeness import Likener, Likeness
from paddock.llm.neutral import Request
from paddock.llm.recording import Recorded

_MOST = 200_000


@dataclass(slots=True)
class Entry:
    """What is known of a recorded exchange without its bodies."""

    id: str
    format: str
    stream: bool
    succeeded: bool
    key: bytes
    likeness: Likeness | None


@dataclass(slots=True)
class Thread:
    """The recorded exchanges of a conversation, by how many answers it had when they were asked."""

    has_tools: bool
    entries: dict[int, list[Entry]] = field(default_factory=dict)


class Index:
    """Recorded exchanges by what they ask for. Beyond its bound, the oldest are forgotten."""

    def __init__(self, likener: Likener, most: int = _MOST) -> None:
        self._likener = likener
        self._most = most
        self._entries: deque[Entry] = deque()
        self._known: set[str] = set()
        self._by_key: dict[bytes, list[Entry]] = {}
        self._by_prefix: dict[bytes, tuple[str, str]] = {}
        self.threads: OrderedDict[bytes, Thread] = OrderedDict()
        self._last: str | None = None
        self.newest = 0.0
        """When the newest exchange began, in seconds since 1970."""

    def __contains__(self, id: str) -> bool:
        return id in self._known

    def skip(self, id: str) -> None:
        """Know an exchange that there is nothing to answer from."""
        self._keep(Entry(id, "", False, False, b"", None))

    def add(self, recorded: Recorded) -> None:
        """Take in an exchange, unless it is known or is itself the answer of a replay."""
        self.newest = max(self.newest, recorded.at)
        if recorded.id in self._known:
            return
        if recorded.provider_kind == "replay":
            self.skip(recorded.id)
            return
        request = read_recorded(recorded)
        likeness = self._likener.of(request) if request is not None else None
        key = likeness.key if likeness is not None else raw_key(recorded.format, recorded.operation, recorded.request)
        succeeded = recorded.status < 400 and recorded.complete
        entry = Entry(recorded.id, recorded.format, recorded.stream, succeeded, key, likeness)
        self._by_key.setdefault(key, []).append(entry)
        if likeness is not None:
            self._last = recorded.id
            for prefix in likeness.prefixes:
                first, _ = self._by_prefix.get(prefix, (recorded.id, ""))
                self._by_prefix[prefix] = (first, recorded.id)
            thread = self.threads.setdefault(likeness.opening, Thread(likeness.has_tools))
            thread.entries.setdefault(likeness.answers, []).append(entry)
        self._keep(entry)

    def _keep(self, entry: Entry) -> None:
        self._known.add(entry.id)
        self._entries.append(entry)
        if len(self._entries) > self._most:
            self._forget(self._entries.popleft())

    def _forget(self, entry: Entry) -> None:
        self._known.discard(entry.id)
        same = self._by_key.get(entry.key, [])
        if entry in same:
            same.remove(entry)
            if not same:
                del self._by_key[entry.key]
        if entry.likeness is None:
            return
        thread = self.threads.get(entry.likeness.opening)
        if thread is not None:
            there = thread.entries.get(entry.likeness.answers, [])
            if entry in there:
                there.remove(entry)
            if not any(thread.entries.values()):
                del self.threads[entry.likeness.opening]
        for prefix in entry.likeness.prefixes:
            if entry.id in self._by_prefix.get(prefix, ()):
                del self._by_prefix[prefix]

    def same(self, key: bytes) -> list[Entry]:
        """The exchanges that ask for the same, oldest first."""
        return self._by_key.get(key, [])

    def nearest(self, likeness: Likeness) -> str | None:
        """The exchange whose conversation has most in common with this one, from its beginning."""
        whole = likeness.prefixes[-1] if likeness.prefixes else b""
        for prefix in reversed(likeness.prefixes):
            if prefix in self._by_prefix:
                # Where this one parts from a longer conversation, the last to have as much in common shows.
                first, last = self._by_prefix[prefix]
                return first if prefix == whole else last
        return self._last


def read_recorded(recorded: Recorded) -> Request | None:
    """The request of a recorded exchange, if it is one for an answer and can be read."""
    if recorded.operation != "generate":
        return None
    try:
        form = FORMATS[recorded.format]
        return form.read_request(recorded.request, model=recorded.model or "-", stream=recorded.stream)
    except InvalidInput:
        return None


def raw_key(format: str, operation: str, body: bytes) -> bytes:
    """The key of a request that is no conversation: all of its JSON but the model and the user."""
    try:
        value = json.loads(body)
        if isinstance(value, dict):
            value = {name: each for name, each in value.items() if name not in ("model", "user", "stream")}
        body = json.dumps(value, sort_keys=True).encode()
    except (ValueError, RecursionError):
        pass
    return hashlib.blake2b(b"\0".join((format.encode(), operation.encode(), body)), digest_size=16).digest()
