"""The newest output of a terminal, for several readers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddock.live.terminal.scrollback import CAPACITY, REPLAY, STDOUT, SharedScrollback, find_clean_text_start

OUT = bytes((STDOUT,))


def scrollback_with(*pieces: bytes) -> SharedScrollback:
    scroll = SharedScrollback()
    for piece in pieces:
        scroll.append(OUT + piece)
    return scroll


def parse_replay(frame: bytes) -> tuple[int, bytes]:
    assert frame[0] == REPLAY
    return int.from_bytes(frame[1:9], "big"), frame[9:]


@given(st.lists(st.binary(min_size=1, max_size=9000), max_size=20), st.integers(0, 50_000))
def test_output_after_an_offset_is_read_in_order(pieces: list[bytes], offset: int) -> None:
    scroll, output = scrollback_with(*pieces), b"".join(pieces)
    position, seen = min(offset, len(output)), b""
    while True:
        frame, position = scroll.next_message(position)
        if not frame:
            break
        assert frame[0] == STDOUT
        seen += frame[1:]
    assert seen == output[offset:]
    assert position == scroll.end == len(output)


def test_up_to_date_viewer_gets_chunks_unchanged() -> None:
    scroll = SharedScrollback()
    frame = OUT + b"x" * 65536
    scroll.append(frame)
    assert scroll.next_message(0)[0] is frame


def test_kept_output_is_bounded_for_any_chunks() -> None:
    for size in (1, 4096, 100_000, 3 * CAPACITY):
        scroll = scrollback_with(*([b"y" * size] * (3 * CAPACITY // size if size > 1 else 20_000)))
        frame, position = scroll.replay_message(0)
        assert len(frame) < CAPACITY + 110_000
        assert position == scroll.end


def test_lagging_viewer_gets_a_replay() -> None:
    scroll = scrollback_with(b"first", *[b"z" * 99_999 + b"\n"] * 20)
    frame, position = scroll.next_message(5)
    first, data = parse_replay(frame)
    assert position == scroll.end == first + len(data)
    assert len(data) < CAPACITY + 100_000


def test_replay_starts_at_the_requested_offset() -> None:
    scroll = scrollback_with("日本語".encode())
    assert parse_replay(scroll.replay_message(4)[0]) == (4, "日本語".encode()[4:])
    assert scroll.replay_message(9) == (b"", 9)


def test_cut_replay_starts_at_a_line_or_whole_character() -> None:
    for text in ("日本語🦆" * 400_000, "日本語🦆\n" * 300_000):
        scroll = scrollback_with(*(text.encode()[i : i + 65_533] for i in range(0, len(text.encode()), 65_533)))
        first, data = parse_replay(scroll.replay_message(0)[0])
        assert first > 0
        assert data.decode()[0] in "日本語🦆"
        assert "\n" not in text or data.decode().startswith("日本語🦆\n")


def test_at_most_three_bytes_of_a_character_are_skipped() -> None:
    assert find_clean_text_start(b"\x80" * 10) == 3
    assert find_clean_text_start(b"") == 0
    assert find_clean_text_start("é".encode()[1:] + b"abc") == 1


def test_offset_of_an_earlier_terminal_replays_from_the_start() -> None:
    assert parse_replay(scrollback_with(b"new").replay_message(1000)[0]) == (0, b"new")


def test_repeated_output_is_stored_once() -> None:
    scroll = scrollback_with(b"abc")
    scroll.load_replay(1, b"bcdef")
    assert parse_replay(scroll.replay_message(0)[0]) == (0, b"abcdef")
    scroll.load_replay(2, b"cd")
    assert scroll.end == 6


def test_missed_output_leaves_a_gap() -> None:
    scroll = scrollback_with(b"abc")
    scroll.load_replay(1000, b"xyz")
    assert parse_replay(scroll.next_message(3)[0]) == (1000, b"xyz")


def test_oversized_output_is_cut_also_after_a_small_chunk() -> None:
    scroll = scrollback_with(b"x", b"y" * (3 * CAPACITY))
    assert scroll.end == 1 + 3 * CAPACITY
    assert len(parse_replay(scroll.replay_message(0)[0])[1]) <= CAPACITY + 1
