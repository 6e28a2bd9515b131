"""A recorded answer told again: in its own bytes, in another format, or in another directory."""

from __future__ import annotations

import json
from collections.abc import Iterator

from paddock.llm.collect import answer_events, collect
from paddock.llm.formats.base import BrokenStream, Format
from paddock.llm.formats.registry import FORMATS
from paddock.llm.likeness import moved
from paddock.llm.neutral import Answer, Request, Text, ToolCall
from paddock.llm.providers.base import Ask
from paddock.llm.providers.local import Beat
from paddock.llm.recorded_index import read_recorded
from paddock.llm.recording import Recorded
from paddock.llm.script.conversation import working_directory

_LONGEST_WAIT = 600.0


def retold(form: Format, ask: Ask, request: Request | None, recorded: Recorded) -> tuple[list[Beat], bool]:
    """The answer in the format that is asked for, each beat's wait being when it came; and whether it is a stream."""
    failed = recorded.status >= 400
    elsewhere = _moved(request, recorded) if request is not None and not failed and recorded.complete else None
    if elsewhere is not None and request is not None:
        return _written(form, request, elsewhere, _last_moment(recorded)), ask.stream
    is_stream = recorded.stream and not failed
    is_array = recorded.body.lstrip()[:1] == b"[" and is_stream
    same = recorded.format == ask.format and recorded.stream == ask.stream and is_array == (ask.array and is_stream)
    if same or (failed and recorded.format == ask.format) or request is None:
        return _as_recorded(recorded), is_stream
    old = FORMATS[recorded.format]
    moment = _last_moment(recorded)
    if failed:
        failure = old.read_failure(recorded.status, recorded.body)
        return [Beat(form.write_failure(failure), moment)], False
    if ask.stream and recorded.stream:
        return list(_translated(form, request, recorded)), True
    return _converted(form, request, recorded, moment), ask.stream


def _as_recorded(recorded: Recorded) -> list[Beat]:
    beats = [Beat(data, moment) for moment, data in recorded.response]
    if not recorded.complete:
        beats.append(Beat(wait=beats[-1].wait if beats else 0.0, breaks=True))
    return beats


def _translated(form: Format, request: Request, recorded: Recorded) -> Iterator[Beat]:
    """A stream as another, piece by piece."""
    reader, writer = FORMATS[recorded.format].reader(), form.writer(request)
    moment = 0.0
    try:
        for moment, data in recorded.response:
            yield Beat(b"".join(writer.write(event) for event in reader.feed(data)), moment)
        if recorded.complete:
            yield Beat(b"".join(writer.write(event) for event in reader.close()), moment)
            return
    except BrokenStream:
        pass
    yield Beat(wait=moment, breaks=True)


def _converted(form: Format, request: Request, recorded: Recorded, moment: float) -> list[Beat]:
    """A stream as a whole answer, or the other way round."""
    answer = _whole_answer(recorded)
    if answer is None:
        return [Beat(wait=moment, breaks=True)]
    return _written(form, request, answer, moment)


def _written(form: Format, request: Request, answer: Answer, moment: float) -> list[Beat]:
    if not request.stream:
        return [Beat(form.write_answer(answer, request), moment)]
    writer = form.writer(request)
    return [Beat(writer.write(event), moment) for event in answer_events(answer)]


def _whole_answer(recorded: Recorded) -> Answer | None:
    """The recorded answer in the neutral form; `None` when it did not finish."""
    form = FORMATS[recorded.format]
    try:
        if not recorded.stream:
            return form.read_answer(recorded.body)
        reader = form.reader()
        return collect([*reader.feed(recorded.body), *reader.close()])
    except BrokenStream:
        return None


def _moved(request: Request, recorded: Recorded) -> Answer | None:
    """The answer moved to the directory that the client works in; `None` when that is the recorded one.

    Agents call their tools with whole paths, which are wrong wherever else the recording is replayed.
    """
    before = read_recorded(recorded)
    old, new = working_directory(before) if before is not None else "", working_directory(request)
    if old == new or len(old) < 2 or not new:
        return None
    answer = _whole_answer(recorded)
    is_moved = False
    for part in answer.parts if answer is not None else ():
        if isinstance(part, ToolCall):
            # Within JSON text a path is written with its quotes and backslashes escaped.
            escaped = (json.dumps(path, ensure_ascii=False)[1:-1] for path in (old, new))
            before_it, part.arguments = part.arguments, moved(part.arguments, *escaped)
            is_moved = is_moved or part.arguments != before_it
        elif isinstance(part, Text):
            before_it, part.text = part.text, moved(part.text, old, new)
            is_moved = is_moved or part.text != before_it
    return answer if is_moved else None


def _last_moment(recorded: Recorded) -> float:
    return recorded.response[-1][0] if recorded.response else 0.0


def timed(beats: list[Beat]) -> list[float]:
    """Pauses before each beat, from when each came."""
    pauses: list[float] = []
    before = 0.0
    for beat in beats:
        pauses.append(min(max(0.0, beat.wait - before), _LONGEST_WAIT))
        before = max(before, beat.wait)
    return pauses
