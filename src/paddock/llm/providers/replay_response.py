"""Turn a recorded response into chunks: unchanged, in another format, or with another working directory."""

from __future__ import annotations

import json
from collections.abc import Iterator

from paddock.llm.formats.answer_events import answer_from_stream_events, stream_events_from_answer
from paddock.llm.formats.base import BrokenModelStream, WireFormat
from paddock.llm.formats.neutral import ModelAnswer, ModelRequest, ModelText, ModelToolCall
from paddock.llm.formats.registry import FORMATS
from paddock.llm.providers.base import ProviderRequest
from paddock.llm.providers.local_response import SimulatedResponseChunk
from paddock.llm.replay.recorded_exchange_index import parse_recorded_request
from paddock.llm.replay.recording_files import RecordedExchange
from paddock.llm.replay.request_matching import replace_directory_in_text
from paddock.llm.scripted_model.conversation_parsing import find_working_directory

_MAX_DELAY = 600.0


def replay_response_chunks(
    form: WireFormat, provider_request: ProviderRequest, request: ModelRequest | None, recorded: RecordedExchange
) -> tuple[list[SimulatedResponseChunk], bool]:
    """Return the response in the requested format, and whether it is a stream. Delays count from the request."""
    failed = recorded.status >= 400
    relocated_answer = (
        _answer_in_directory(request, recorded) if request is not None and not failed and recorded.complete else None
    )
    if relocated_answer is not None and request is not None:
        return _written_chunks(form, request, relocated_answer, _last_moment(recorded)), provider_request.stream
    is_stream = recorded.stream and not failed
    is_array = recorded.body.lstrip()[:1] == b"[" and is_stream
    same = (
        recorded.format == provider_request.format
        and recorded.stream == provider_request.stream
        and is_array == (provider_request.array and is_stream)
    )
    if same or (failed and recorded.format == provider_request.format) or request is None:
        return _recorded_chunks(recorded), is_stream
    old = FORMATS[recorded.format]
    moment = _last_moment(recorded)
    if failed:
        failure = old.read_failure(recorded.status, recorded.body)
        return [SimulatedResponseChunk(form.write_failure(failure), moment)], False
    if provider_request.stream and recorded.stream:
        return list(_translated_chunks(form, request, recorded)), True
    return _converted_chunks(form, request, recorded, moment), provider_request.stream


def _recorded_chunks(recorded: RecordedExchange) -> list[SimulatedResponseChunk]:
    chunks = [SimulatedResponseChunk(data, moment) for moment, data in recorded.response]
    if not recorded.complete:
        chunks.append(SimulatedResponseChunk(delay=chunks[-1].delay if chunks else 0.0, breaks=True))
    return chunks


def _translated_chunks(
    form: WireFormat, request: ModelRequest, recorded: RecordedExchange
) -> Iterator[SimulatedResponseChunk]:
    """Translate a stream into another format, piece by piece."""
    reader, writer = FORMATS[recorded.format].new_stream_reader(), form.new_stream_writer(request)
    moment = 0.0
    try:
        for moment, data in recorded.response:
            yield SimulatedResponseChunk(b"".join(writer.write(event) for event in reader.feed(data)), moment)
        if recorded.complete:
            yield SimulatedResponseChunk(b"".join(writer.write(event) for event in reader.close()), moment)
            return
    except BrokenModelStream:
        pass
    yield SimulatedResponseChunk(delay=moment, breaks=True)


def _converted_chunks(
    form: WireFormat, request: ModelRequest, recorded: RecordedExchange, moment: float
) -> list[SimulatedResponseChunk]:
    """Convert a stream into a whole response, or the other way round."""
    answer = _recorded_answer(recorded)
    if answer is None:
        return [SimulatedResponseChunk(delay=moment, breaks=True)]
    return _written_chunks(form, request, answer, moment)


def _written_chunks(
    form: WireFormat, request: ModelRequest, answer: ModelAnswer, moment: float
) -> list[SimulatedResponseChunk]:
    if not request.stream:
        return [SimulatedResponseChunk(form.write_answer(answer, request), moment)]
    writer = form.new_stream_writer(request)
    return [SimulatedResponseChunk(writer.write(event), moment) for event in stream_events_from_answer(answer)]


def _recorded_answer(recorded: RecordedExchange) -> ModelAnswer | None:
    """Return the recorded answer in the neutral form; `None` if it did not finish."""
    form = FORMATS[recorded.format]
    try:
        if not recorded.stream:
            return form.read_answer(recorded.body)
        reader = form.new_stream_reader()
        return answer_from_stream_events([*reader.feed(recorded.body), *reader.close()])
    except BrokenModelStream:
        return None


def _answer_in_directory(request: ModelRequest, recorded: RecordedExchange) -> ModelAnswer | None:
    """Return the answer with the client's working directory in place of the recorded one; `None` if nothing changes.

    Agents call tools with absolute paths, which are wrong when the recording is replayed in another directory.
    """
    before = parse_recorded_request(recorded)
    old, new = find_working_directory(before) if before is not None else "", find_working_directory(request)
    if old == new or len(old) < 2 or not new:
        return None
    answer = _recorded_answer(recorded)
    is_moved = False
    for part in answer.parts if answer is not None else ():
        if isinstance(part, ModelToolCall):
            # Within JSON text a path is written with its quotes and backslashes escaped.
            escaped = (json.dumps(path, ensure_ascii=False)[1:-1] for path in (old, new))
            before_it, part.arguments = part.arguments, replace_directory_in_text(part.arguments, *escaped)
            is_moved = is_moved or part.arguments != before_it
        elif isinstance(part, ModelText):
            before_it, part.text = part.text, replace_directory_in_text(part.text, old, new)
            is_moved = is_moved or part.text != before_it
    return answer if is_moved else None


def _last_moment(recorded: RecordedExchange) -> float:
    return recorded.response[-1][0] if recorded.response else 0.0


def chunk_delays(chunks: list[SimulatedResponseChunk]) -> list[float]:
    """Return the delay before each chunk, from the times since the request."""
    pauses: list[float] = []
    before = 0.0
    for chunk in chunks:
        pauses.append(min(max(0.0, chunk.delay - before), _MAX_DELAY))
        before = max(before, chunk.delay)
    return pauses
