from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.cli.sandbox.stdin_streaming import MAX_INLINE_BYTES, StandardInput

pytestmark = pytest.mark.anyio


async def _all(source: StandardInput) -> bytes:
    return b"".join([piece async for piece in source.chunks()])


async def test_short_and_ended_input_is_complete() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"abc")
    os.close(writer)
    source = StandardInput.read_available(reader)
    os.close(reader)
    assert (source.head, source.complete) == (b"abc", True)


async def test_an_open_pipe_is_streamed_to_its_end() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"first ")
    source = StandardInput.read_available(reader, patience=0.01)
    assert (source.head, source.complete) == (b"first ", False)
    os.write(writer, b"second")
    os.close(writer)
    assert await _all(source) == b"first second"
    os.close(reader)


async def test_a_large_file_is_streamed(tmp_path: Path) -> None:
    content = os.urandom(3 * MAX_INLINE_BYTES)
    (tmp_path / "file").write_bytes(content)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    source = StandardInput.read_available(descriptor)
    assert not source.complete
    assert await _all(source) == content
    os.close(descriptor)


async def test_no_input_at_all_is_empty() -> None:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    assert StandardInput.read_available(descriptor).complete
    os.close(descriptor)
    master, slave = os.openpty()
    assert StandardInput.read_available(slave).head == b"" and StandardInput.read_available(slave).complete
    os.close(master)
    os.close(slave)
    assert StandardInput.read_available(slave).complete
