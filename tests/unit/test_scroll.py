"""The newest output of a terminal, read by many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddock.live.scroll import KEPT, REPLAY, STDOUT, Scroll, whole

OUT = bytes((STDOUT,))


def filled(*pieces: bytes) -> Scroll:
    scroll = Scroll()
    for piece in pieces:
        scroll.append(OUT + piece)
    return scroll


def opened(frame: bytes) -> tuple[int, bytes]:
    assert frame[0] == REPLAY
    return int.from_bytes(frame[1:9], "big"), frame[9:]


@given(st.lists(st.binary(min_size=1, max_size=9000), max_size=20), st.integers(0, 50_000))
def test_everything_after_a_place_is_read_in_order(pieces: list[bytes], place: int) -> None:
    scroll, said = filled(*pieces), b"".join(pieces)
    position, seen = min(place, len(said)), b""
    while True:
        frame, position = scroll.take(position)
        if not frame:
            break
        assert frame[0] == STDOUT
        seen += frame[1:]
    assert seen == said[place:]
    assert position == scroll.end == len(said)


def test_a_piece_goes_to_who_keeps_up_as_it_came() -> None:
    scroll = Scroll()
    frame = OUT + b"x" * 65536
    scroll.append(frame)
    assert scroll.take(0)[0] is frame


def test_what_is_kept_is_bounded_whatever_the_pieces() -> None:
    for size in (1, 4096, 100_000, 3 * KEPT):
        scroll = filled(*([b"y" * size] * (3 * KEPT // size if size > 1 else 20_000)))
        frame, position = scroll.replay(0)
        assert len(frame) < KEPT + 110_000
        assert position == scroll.end


def test_who_falls_behind_is_given_a_replay_of_the_rest() -> None:
    scroll = filled(b"first", *[b"z" * 99_999 + b"\n"] * 20)
    frame, position = scroll.take(5)
    first, data = opened(frame)
    assert position == scroll.end == first + len(data)
    assert len(data) < KEPT + 100_000


def test_a_replay_begins_where_it_was_asked_for() -> None:
    scroll = filled("日本語".encode())
    assert opened(scroll.replay(4)[0]) == (4, "日本語".encode()[4:])
    assert scroll.replay(9) == (b"", 9)


def test_a_replay_that_is_cut_begins_with_a_line_or_a_whole_character() -> None:
    for text in ("日本語🦆" * 400_000, "日本語🦆\n" * 300_000):
        scroll = filled(*(text.encode()[i : i + 65_533] for i in range(0, len(text.encode()), 65_533)))
        first, data = opened(scroll.replay(0)[0])
        assert first > 0
        assert data.decode()[0] in "日本語🦆"
        assert "\n" not in text or data.decode().startswith("日本語🦆\n")


def test_nothing_more_than_three_bytes_of_a_character_are_skipped() -> None:
    assert whole(b"\x80" * 10) == 3
    assert whole(b"") == 0
    assert whole("é".encode()[1:] + b"abc") == 1


def test_a_place_of_a_terminal_that_is_no_more_means_the_beginning() -> None:
    assert opened(filled(b"new").replay(1000)[0]) == (0, b"new")


def test_output_that_is_told_again_is_taken_once() -> None:
    scroll = filled(b"abc")
    scroll.load(1, b"bcdef")
    assert opened(scroll.replay(0)[0]) == (0, b"abcdef")
    scroll.load(2, b"cd")
    assert scroll.end == 6


def test_output_that_was_missed_leaves_a_gap() -> None:
    scroll = filled(b"abc")
    scroll.load(1000, b"xyz")
    assert opened(scroll.take(3)[0]) == (1000, b"xyz")


def test_what_is_too_much_is_cut_also_behind_a_little() -> None:
    scroll = filled(b"x", b"y" * (3 * KEPT))
    assert scroll.end == 1 + 3 * KEPT
    assert len(opened(scroll.replay(0)[0])[1]) <= KEPT + 1
