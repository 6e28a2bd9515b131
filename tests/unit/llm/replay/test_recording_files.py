"""Recordings keep exchanges to the byte, survive a crash, and complain precisely."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from paddock.llm.exchange import Exchange, ExchangeOutcome, ModelCaller
from paddock.llm.formats.registry import FORMATS
from paddock.llm.replay.recording_files import (
    RecordedExchange,
    RecordingFileError,
    RecordingWriter,
    decode_recording_line,
    encode_recording_line,
    is_recordable,
    read_recording,
    to_recorded_exchange,
)

NAMES = pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])


def exchange(number: int = 0) -> Exchange:
    return Exchange(
        id=f"ex-{number}",
        at=1000.0 + number,
        caller=ModelCaller("tenant", "key-id", sandbox="box"),
        format="openai-chat",
        operation="generate",
        model="m",
        request=b'{"n": %d}' % number,
        status=200,
        response=[(0.25, b"one\n"), (0.5, b"\xff\x00")],
    )


@given(
    st.builds(
        RecordedExchange,
        id=st.text(min_size=1, max_size=9),
        format=st.sampled_from(list(FORMATS)),
        operation=st.sampled_from(["generate", "embed"]),
        model=st.text(max_size=9),
        stream=st.booleans(),
        request=st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode()),
        status=st.integers(100, 599),
        response=st.lists(st.tuples(st.floats(0, 1e6), st.binary(max_size=20)), max_size=5).map(tuple),
        at=st.floats(0, 1e10),
        conversation=st.none() | st.text(max_size=9),
        complete=st.booleans(),
    )
)
def test_line_restores_an_exchange_byte_for_byte(recorded: RecordedExchange) -> None:
    line = encode_recording_line(recorded)
    assert line.count(b"\n") == 1
    assert decode_recording_line(line) == recorded


@NAMES
def test_exchanges_are_appended_and_read_in_order(tmp_path: Path, name: str) -> None:
    path = tmp_path / "deep" / name
    for number in range(3):
        RecordingWriter(path).add(exchange(number))
    assert read_recording(path) == [to_recorded_exchange(exchange(number)) for number in range(3)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_recording_does_not_contain_the_caller(tmp_path: Path) -> None:
    RecordingWriter(tmp_path / "a.jsonl").add(exchange())
    text = (tmp_path / "a.jsonl").read_text()
    assert not any(word in text for word in ("tenant", "key-id", "box"))


@NAMES
def test_a_recording_cut_anywhere_loses_its_last_exchange_at_most(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    writer = RecordingWriter(path)
    writer.add(exchange(0))
    sound = path.stat().st_size
    writer.add(exchange(1))
    whole = path.read_bytes()
    for cut in range(sound, len(whole), 7):
        path.write_bytes(whole[:cut])
        assert read_recording(path) == [to_recorded_exchange(exchange(0))]
        RecordingWriter(path).add(exchange(2))
        assert [each.id for each in read_recording(path)] == ["ex-0", "ex-2"]


def test_empty_recording_has_no_exchanges(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.zst"):
        (tmp_path / name).touch()
        assert read_recording(tmp_path / name) == []
        RecordingWriter(tmp_path / name).add(exchange())
        assert len(read_recording(tmp_path / name)) == 1


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(encode_recording_line(exchange())), **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nonsense\n", "not a recorded exchange"),
        (b"[]\n", "not a recorded exchange"),
        (b'{"version": 1}\n', "missing required field"),
        (changed(version=2), "version 2 is unknown"),
        (changed(format="morse"), "there is no format 'morse'; known are: openai-chat"),
        (changed(status=0), "0 is not an HTTP status"),
        (changed(request={"base64": "?"}), "not a recorded exchange"),
        (changed(response=[["soon", ""]]), "not a recorded exchange"),
        (b"\xff\n", "not a recorded exchange"),
        (b"[" * 100_000 + b"\n", "not a recorded exchange"),
    ],
)
def test_error_names_the_invalid_line(tmp_path: Path, line: bytes, problem: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode_recording_line(exchange()) + b"\n" + line)
    with pytest.raises(RecordingFileError, match=problem) as caught:
        read_recording(path)
    assert caught.value.message.startswith(f"{path}:3: ")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingFileError, match="cannot be read"):
        read_recording(tmp_path / "none.jsonl")
    with pytest.raises(RecordingFileError, match="cannot be read"):
        read_recording(tmp_path)
    (tmp_path / "export.jsonl").write_text('{"messages": []}\n')
    with pytest.raises(
        RecordingFileError, match=r"export\.jsonl is no recording; make one with: paddock llm record FILE$"
    ):
        read_recording(tmp_path / "export.jsonl")
    (tmp_path / "a.zst").write_bytes(b"not compressed at all")
    with pytest.raises(RecordingFileError, match="not compressed with zstd"):
        read_recording(tmp_path / "a.zst")


def test_other_tools_may_compress_a_recording_as_a_whole(tmp_path: Path) -> None:
    lines = b"".join(encode_recording_line(exchange(number)) for number in range(3))
    (tmp_path / "a.zst").write_bytes(zstandard.ZstdCompressor().compress(lines))
    RecordingWriter(tmp_path / "a.zst").add(exchange(3))
    assert [each.id for each in read_recording(tmp_path / "a.zst")] == ["ex-0", "ex-1", "ex-2", "ex-3"]


def test_unanswered_exchanges_are_not_recorded() -> None:
    assert is_recordable(exchange())
    assert not is_recordable(replace(exchange(), outcome=ExchangeOutcome.REFUSED))
    assert not is_recordable(replace(exchange(), outcome=ExchangeOutcome.CLIENT_GONE))
    assert not is_recordable(replace(exchange(), provider_kind="replay"))
    assert not to_recorded_exchange(replace(exchange(), outcome=ExchangeOutcome.CUT)).complete
