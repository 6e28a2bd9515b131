"""Index of recorded exchanges: find exchanges that match a request, or the next one of a conversation."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from paddock.errors import InvalidInput
from paddock.llm.formats.neutral import ModelRequest
from paddock.llm.formats.registry import FORMATS
from paddock.llm.replay.recording_files import RecordedExchange
from paddock.llm.replay.request_matching import RequestFingerprint, RequestMatcher

_MAX_ENTRIES = 200_000


@dataclass(slots=True)
class RecordedExchangeEntry:
    """A recorded exchange without its bodies."""

    id: str
    format: str
    stream: bool
    succeeded: bool
    key: bytes
    fingerprint: RequestFingerprint | None


@dataclass(slots=True)
class RecordedConversation:
    """The recorded exchanges of a conversation, by the number of earlier answers in their requests."""

    has_tools: bool
    entries: dict[int, list[RecordedExchangeEntry]] = field(default_factory=dict)


class RecordedExchangeIndex:
    """Recorded exchanges by request fingerprint. Beyond the bound, the oldest are dropped."""

    def __init__(self, matcher: RequestMatcher, max_entries: int = _MAX_ENTRIES) -> None:
        self._matcher = matcher
        self._most = max_entries
        self._entries: deque[RecordedExchangeEntry] = deque()
        self._known: set[str] = set()
        self._by_key: dict[bytes, list[RecordedExchangeEntry]] = {}
        self._by_prefix: dict[bytes, tuple[str, str]] = {}
        self.conversations: OrderedDict[bytes, RecordedConversation] = OrderedDict()
        self._last: str | None = None
        self.newest = 0.0
        """Start time of the newest exchange, in seconds since 1970."""

    def __contains__(self, id: str) -> bool:
        return id in self._known

    def mark_known(self, id: str) -> None:
        """Remember the id of an exchange that cannot be replayed."""
        self._store_entry(RecordedExchangeEntry(id, "", False, False, b"", None))

    def add(self, recorded: RecordedExchange) -> None:
        """Add an exchange, unless it is known or was itself answered by a replay."""
        self.newest = max(self.newest, recorded.at)
        if recorded.id in self._known:
            return
        if recorded.provider_kind == "replay":
            self.mark_known(recorded.id)
            return
        request = parse_recorded_request(recorded)
        fingerprint = self._matcher.fingerprint(request) if request is not None else None
        key = (
            fingerprint.key
            if fingerprint is not None
            else digest_raw_request(recorded.format, recorded.operation, recorded.request)
        )
        succeeded = recorded.status < 400 and recorded.complete
        entry = RecordedExchangeEntry(recorded.id, recorded.format, recorded.stream, succeeded, key, fingerprint)
        self._by_key.setdefault(key, []).append(entry)
        if fingerprint is not None:
            self._last = recorded.id
            for prefix in fingerprint.prefixes:
                first, _ = self._by_prefix.get(prefix, (recorded.id, ""))
                self._by_prefix[prefix] = (first, recorded.id)
            thread = self.conversations.setdefault(fingerprint.opening, RecordedConversation(fingerprint.has_tools))
            thread.entries.setdefault(fingerprint.answers, []).append(entry)
        self._store_entry(entry)

    def _store_entry(self, entry: RecordedExchangeEntry) -> None:
        self._known.add(entry.id)
        self._entries.append(entry)
        if len(self._entries) > self._most:
            self._drop_entry(self._entries.popleft())

    def _drop_entry(self, entry: RecordedExchangeEntry) -> None:
        self._known.discard(entry.id)
        same = self._by_key.get(entry.key, [])
        if entry in same:
            same.remove(entry)
            if not same:
                del self._by_key[entry.key]
        if entry.fingerprint is None:
            return
        thread = self.conversations.get(entry.fingerprint.opening)
        if thread is not None:
            same_position = thread.entries.get(entry.fingerprint.answers, [])
            if entry in same_position:
                same_position.remove(entry)
            if not any(thread.entries.values()):
                del self.conversations[entry.fingerprint.opening]
        for prefix in entry.fingerprint.prefixes:
            if entry.id in self._by_prefix.get(prefix, ()):
                del self._by_prefix[prefix]

    def find_same(self, key: bytes) -> list[RecordedExchangeEntry]:
        """Return the exchanges with this request key, oldest first."""
        return self._by_key.get(key, [])

    def find_nearest(self, fingerprint: RequestFingerprint) -> str | None:
        """Return the id of the exchange with the longest common conversation prefix."""
        whole_prefix = fingerprint.prefixes[-1] if fingerprint.prefixes else b""
        for prefix in reversed(fingerprint.prefixes):
            if prefix in self._by_prefix:
                # The request diverges from a longer conversation: the latest exchange with this prefix shows where.
                first, last = self._by_prefix[prefix]
                return first if prefix == whole_prefix else last
        return self._last


def parse_recorded_request(recorded: RecordedExchange) -> ModelRequest | None:
    """Return the parsed request of a recorded exchange; `None` if it asks for no answer or is invalid."""
    if recorded.operation != "generate":
        return None
    try:
        form = FORMATS[recorded.format]
        return form.read_request(recorded.request, model=recorded.model or "-", stream=recorded.stream)
    except InvalidInput:
        return None


def digest_raw_request(format: str, operation: str, body: bytes) -> bytes:
    """Return the key of a request that is not a conversation: a digest of its JSON without model and user."""
    try:
        value = json.loads(body)
        if isinstance(value, dict):
            value = {name: each for name, each in value.items() if name not in ("model", "user", "stream")}
        body = json.dumps(value, sort_keys=True).encode()
    except (ValueError, RecursionError):
        pass
    return hashlib.blake2b(b"\0".join((format.encode(), operation.encode(), body)), digest_size=16).digest()
