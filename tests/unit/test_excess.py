"""Whoever writes too much is stopped each time it writes on, and left alone while it tidies up."""

from __future__ import annotations

from paddock.fleet.excess import SLACK, Excess

LIMIT = 100 * SLACK


def test_going_over_the_limit_is_stopped_once_and_again_when_it_goes_on() -> None:
    excess = Excess()
    assert not excess.grows("box", LIMIT, LIMIT)
    assert excess.grows("box", LIMIT + 1, LIMIT)
    assert not excess.grows("box", LIMIT + 1, LIMIT)
    assert excess.grows("box", LIMIT + 2 + SLACK, LIMIT)


def test_tidying_up_is_let_be() -> None:
    excess = Excess()
    assert excess.grows("box", 2 * LIMIT, LIMIT)
    for used in (2 * LIMIT + SLACK // 2, LIMIT + 7 * SLACK, LIMIT + 5 * SLACK, LIMIT + 6 * SLACK):
        assert not excess.grows("box", used, LIMIT)
    assert excess.grows("box", LIMIT + 6 * SLACK + 1, LIMIT)


def test_growing_slowly_is_growing() -> None:
    excess = Excess()
    used = LIMIT + 1
    assert excess.grows("box", used, LIMIT)
    stopped = [excess.grows("box", used + step * SLACK // 4, LIMIT) for step in range(1, 11)]
    assert stopped == [False, False, False, False, True, False, False, False, False, True]


def test_what_came_back_below_its_limit_starts_anew() -> None:
    excess = Excess()
    assert excess.grows("box", LIMIT + 1, LIMIT)
    assert not excess.grows("box", LIMIT - 1, LIMIT)
    assert excess.grows("box", LIMIT + 1, LIMIT)
    excess.keep(set())
    assert excess.grows("box", LIMIT + 1, LIMIT)
