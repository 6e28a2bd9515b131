"""Callers who hang up, and the queue they leave."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from paddock.inside.tools.callers import Caller, HungUp, Turn


class Line:
    """A connection with a caller at its other end."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.ours = ours
        self.caller = Caller(ours)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    made = [Line() for _ in range(3)]
    yield made
    for line in made:
        line.close()


def test_one_who_has_said_all_is_still_there(lines: list[Line]) -> None:
    lines[0].theirs.sendall(b"more")
    lines[0].theirs.shutdown(socket.SHUT_WR)
    lines[0].caller.check()
    lines[0].caller.sleep(0.001)


def test_one_who_closes_is_gone(lines: list[Line]) -> None:
    lines[0].theirs.close()
    assert lines[0].caller.gone
    with pytest.raises(HungUp):
        lines[0].caller.sleep(60)


def test_nobody_in_particular_stays() -> None:
    Caller().check()
    Caller().sleep(0.001)
    assert Caller().fileno() < 0


def test_a_turn_is_for_one_at_a_time_and_too_late_is_told() -> None:
    turn = Turn()
    assert turn.take(Caller(), 0)
    assert not turn.take(Caller(), 0.001)
    turn.give_back()
    assert turn.take(Caller(), 0)


def waiting(turn: Turn) -> int:
    return len(turn._waiting)


def until_waiting(turn: Turn, number: int) -> None:
    tick = threading.Event()
    for _ in range(2000):
        if waiting(turn) == number:
            return
        tick.wait(0.005)
    raise AssertionError("they never queued")


def test_turns_come_in_order_and_skip_who_has_left(lines: list[Line]) -> None:
    turn, order = Turn(), []

    def take(number: int) -> None:
        assert turn.take(lines[number].caller, 20)
        order.append(number)
        turn.give_back()

    assert turn.take(Caller(), 0)
    with ThreadPoolExecutor(3) as pool:
        queued = []
        for number in range(3):
            queued.append(pool.submit(take, number))
            until_waiting(turn, number + 1)
        lines[1].theirs.close()
        with pytest.raises(HungUp):
            queued[1].result(5)
        assert waiting(turn) == 2
        turn.give_back()
        queued[0].result(5)
        queued[2].result(5)
    assert order == [0, 2]


def test_a_turn_that_comes_to_one_who_has_left_goes_on_to_the_next(lines: list[Line]) -> None:
    lines[0].theirs.close()
    turn = Turn()
    assert turn.take(Caller(), 0)

    class Late(Caller):
        """Hangs up in the moment in which the turn comes."""

        def join(self, poller: object) -> None:
            turn.give_back()

        @property
        def gone(self) -> bool:
            return True

    with pytest.raises(HungUp):
        turn.take(Late(), 20)
    assert turn.take(Caller(), 0)
