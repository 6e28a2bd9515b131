"""Outputs of any length, of which the beginning and the end are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddock.inside.tools.workspace.program_runner import HeadAndTailBuffer


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(2, 60))
def test_output_within_the_limit_is_kept_and_the_rest_counted(pieces: list[bytes], limit: int) -> None:
    kept = HeadAndTailBuffer(limit)
    for piece in pieces:
        kept.append(piece)
    whole = b"".join(pieces)
    half = limit // 2
    if len(whole) <= 2 * half:
        assert kept.text() == whole.decode("utf-8", "replace") and not kept.is_cut
    else:
        assert kept.is_cut and f"{len(whole) - 2 * half} bytes left out" in kept.text()
        assert kept.text().startswith(whole[:half].decode("utf-8", "replace"))


def test_memory_does_not_grow_with_the_output() -> None:
    kept = HeadAndTailBuffer(1000)
    for _ in range(1000):
        kept.append(b"x" * 100_000)
    assert len(kept.text()) < 1200 and "99999000 bytes left out" in kept.text()
