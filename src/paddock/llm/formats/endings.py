"""Whether a stream that is relayed byte for byte has said that it is over.

Most pieces are whole events that are not the last, and those cost a few searches for words. Only where such a word is
found is the event read, so that a model that merely speaks of endings, even in the arguments of a call, ends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from paddock.llm.formats.base import BrokenStream
from paddock.llm.formats.sse import EventReader

LARGEST_EVENT = 64 * 1024 * 1024
"""An event that grows beyond this is let go, and ends nothing."""


_MOST_CHOICES = 128


class Ending(Enum):
    OPEN = "open"
    FINISHED = "finished"
    FAILED = "failed"
    """The provider told of an error, which ends a stream as properly as an answer does."""


class _Choice(msgspec.Struct):
    index: Any = None
    finish_reason: Any = None


class _Chat(msgspec.Struct):
    choices: list[_Choice] | None = None
    error: Any = None
    object: Any = None


class _Typed(msgspec.Struct):
    type: Any = None
    error: Any = None


class _Candidate(msgspec.Struct):
    camel: Any = msgspec.field(name="finishReason", default=None)
    snake: Any = msgspec.field(name="finish_reason", default=None)


class _Feedback(msgspec.Struct):
    reason: Any = msgspec.field(name="blockReason", default=None)


class _Gemini(msgspec.Struct):
    candidates: list[_Candidate] | None = None
    feedback: _Feedback | None = msgspec.field(name="promptFeedback", default=None)
    error: Any = None


_chat = msgspec.json.Decoder(_Chat)
_typed = msgspec.json.Decoder(_Typed)
_gemini = msgspec.json.Decoder(_Gemini)
_gemini_array = msgspec.json.Decoder(list[_Gemini])


class _Choices:
    """The answers in one stream of Chat Completions: a client may ask for several, and all must have ended."""

    def __init__(self) -> None:
        self.count = 1
        self.done = False
        """Whether it was said that nothing more comes, of whichever."""
        self._finished: set[int] = set()

    def ending(self, data: str, name: str) -> Ending:
        self.done = self.done or data.strip() == "[DONE]"
        if self.done:
            return Ending.FINISHED
        chunk = _chat.decode(data)
        if chunk.error or chunk.object == "error":
            return Ending.FAILED
        for choice in chunk.choices or ():
            index = choice.index if isinstance(choice.index, int) and 0 <= choice.index < _MOST_CHOICES else 0
            self.count = max(self.count, index + 1)
            if choice.finish_reason:
                self._finished.add(index)
        return Ending.FINISHED if len(self._finished) == self.count else Ending.OPEN


def _anthropic_ending(data: str, name: str) -> Ending:
    kind = _typed.decode(data).type or name
    if kind == "error":
        return Ending.FAILED
    return Ending.FINISHED if kind == "message_stop" else Ending.OPEN


def _responses_ending(data: str, name: str) -> Ending:
    event = _typed.decode(data)
    kind = event.type or name
    if kind in ("error", "response.failed", "response.cancelled"):
        return Ending.FAILED
    if kind in ("response.completed", "response.incomplete", "response.done"):
        return Ending.FINISHED
    return Ending.FAILED if event.error and not str(kind).startswith("response.") else Ending.OPEN


def _gemini_ending(data: str, name: str) -> Ending:
    return _said(_gemini.decode(data)) if data.strip() != "[DONE]" else Ending.OPEN


def _said(answer: _Gemini) -> Ending:
    if answer.error:
        return Ending.FAILED
    if answer.candidates:
        first = answer.candidates[0]
        return Ending.FINISHED if first.camel or first.snake else Ending.OPEN
    blocked = answer.feedback is not None and answer.feedback.reason
    return Ending.FINISHED if blocked else Ending.OPEN


class _Signs(NamedTuple):
    """What to look for in one format: first for what all but the last events have, then for what the last may have.

    The pattern begins with a literal, so that its search is fast; one pattern for all signs takes ten times as long.
    """

    start: bytes | tuple[bytes, ...]
    """How an event in the midst of an answer begins. An event that begins so ..."""
    lines: int
    """... is alone in a piece with this many line ends ..."""
    word: bytes
    """... and ends nothing if it holds this."""
    words: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    judge: Callable[[str, str], Ending] | None = None
    """How an event that has a sign is read; `None` where several answers are to be kept apart."""


_SECOND = b'"index":1'
"""What the chunks of a second answer hold, besides those of a second call."""
_SIGNS = {
    "openai-chat": _Signs(
        start=b"data: {",
        lines=2,
        word=b'"finish_reason":null',
        words=(b"[DONE]", b'"error"', _SECOND, b'"index": 1'),
        pattern=re.compile(rb'"finish_reason"\s*:\s*"[^"]'),
    ),
    "anthropic": _Signs(
        start=b"event: content_block_",
        lines=3,
        word=b"",
        words=(b'"error"', b"event: error"),
        pattern=re.compile(rb"message_stop"),
        judge=_anthropic_ending,
    ),
    "openai-responses": _Signs(
        start=(b"event: response.output_", b"event: response.function_call_", b"event: response.reasoning_"),
        lines=3,
        word=b"",
        words=(b'"error"', b"event: error"),
        pattern=re.compile(rb"response\.(?:completed|incomplete|failed|cancelled|done)\b"),
        judge=_responses_ending,
    ),
    "gemini": _Signs(
        start=(),
        lines=0,
        word=b"",
        words=(b'"error"',),
        pattern=re.compile(rb'eason"\s*:\s*"[^"]'),  # finishReason, finish_reason, blockReason
        judge=_gemini_ending,
    ),
}


class EndWatch:
    """Watches the pieces of one stream, however it is cut. Ask it at the end, or whenever it may have come."""

    __slots__ = (
        "_array", "_choices", "_ending", "_judge", "_lines", "_open", "_over", "_seam", "_signs", "_size", "_start",
        "_word",
    )  # fmt: skip

    def __init__(self, format: str) -> None:
        signs = _SIGNS[format]
        self._signs = signs
        self._start, self._lines, self._word = signs.start, signs.lines, signs.word
        choices = _Choices()
        self._choices = choices if signs.judge is None else None
        self._judge = signs.judge or choices.ending
        self._array: bool | None = None if format == "gemini" else False
        """Whether the stream is one JSON array; `None` until its first byte tells."""
        self._open: list[bytes] = []
        """The pieces of an event that is not yet whole."""
        self._seam = b""
        """The last bytes of those, for an end that is cut in two."""
        self._size = 0
        self._ending = Ending.OPEN
        self._over = False
        """Whether nothing that is still to come could change how it ended."""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes."""
        if self._open or self._array is not False or piece[-2:] != b"\n\n":
            self._gather(piece)
        elif (
            piece.startswith(self._start)
            and piece.count(b"\n") == self._lines
            and piece.rfind(self._word) >= 0
            and (self._choices is None or (self._choices.count == 1 and _SECOND not in piece))
        ):
            return
        elif not self._over and self._suspicious(piece):
            self._read(piece)

    @property
    def ending(self) -> Ending:
        """How it ended, or that it has not; an event that only lacks its blank line counts."""
        if not self._over and self._open:
            rest = b"".join(self._open)
            self._open = [rest]
            if self._suspicious(rest):
                self._read(rest)
        return self._ending

    @property
    def finished(self) -> bool:
        """Whether it has said its end, be it an answer's or an error."""
        return self.ending is not Ending.OPEN

    def _gather(self, piece: bytes) -> None:
        if self._over:
            return
        if self._array is None:
            piece = piece.lstrip()
            if not piece:
                return
            self._array = piece[:1] in (b"[", b"{")
        seam = self._seam + piece
        self._seam = seam[-2:]
        self._open.append(piece)
        self._size += len(piece)
        if not self._array and (b"\n\n" in seam or b"\n\r\n" in seam):
            gathered = b"".join(self._open)
            end = max(gathered.rfind(b"\n\n") + 2, gathered.rfind(b"\n\r\n") + 3)
            whole, rest = gathered[:end], gathered[end:]
            self._open = [rest] if rest else []
            self._size = len(rest)
            self._seam = rest[-2:]
            if self._suspicious(whole):
                self._read(whole)
        if self._size > LARGEST_EVENT:
            # What is still to come of the event is read as the nonsense it is without its start.
            self._open = [b""]
            self._size = 0

    def _suspicious(self, data: bytes) -> bool:
        if self._choices is not None and self._choices.count > 1:
            return True  # Which of the answers it belongs to is to be known.
        for word in self._signs.words:
            if word in data:
                return True
        return self._signs.pattern.search(data) is not None

    def _read(self, data: bytes) -> None:
        try:
            if self._array:
                self._ending = _array_ending(data)
                self._over = self._ending is not Ending.OPEN
                return
            reader = EventReader(limit=len(data) + 1)
            for event in [*reader.feed(data), *reader.close()]:
                try:
                    self._ending = self._judge(event.data, event.name)
                except (msgspec.MsgspecError, RecursionError):
                    continue  # what is not of the format says nothing
                if self._is_settled():
                    self._over = True
                    return
        except (BrokenStream, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # nor does what cannot be read at all

    def _is_settled(self) -> bool:
        """Whether the ending stands. That of one answer does not while others may follow in the same stream."""
        if self._ending is Ending.FINISHED and self._choices is not None:
            return self._choices.done
        return self._ending is not Ending.OPEN


def _array_ending(data: bytes) -> Ending:
    """The ending of a stream that is one JSON array. One that is not whole is no end: nobody could read it."""
    if data.lstrip()[:1] == b"{":
        return _said(_gemini.decode(data))
    endings = [_said(answer) for answer in _gemini_array.decode(data)]
    return next((ending for ending in endings if ending is not Ending.OPEN), Ending.OPEN)
