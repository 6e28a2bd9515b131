"""Disk overuse: growth above the limit is stopped each time, deleting files is not."""

from __future__ import annotations

from paddock.fleet.disk_overuse import SLACK, DiskOveruseTracker

LIMIT = 100 * SLACK


def test_growing_overuse_is_stopped_again() -> None:
    overuse = DiskOveruseTracker()
    assert not overuse.is_growing("box", LIMIT, LIMIT)
    assert overuse.is_growing("box", LIMIT + 1, LIMIT)
    assert not overuse.is_growing("box", LIMIT + 1, LIMIT)
    assert overuse.is_growing("box", LIMIT + 2 + SLACK, LIMIT)


def test_deleting_files_is_not_stopped() -> None:
    overuse = DiskOveruseTracker()
    assert overuse.is_growing("box", 2 * LIMIT, LIMIT)
    for used in (2 * LIMIT + SLACK // 2, LIMIT + 7 * SLACK, LIMIT + 5 * SLACK, LIMIT + 6 * SLACK):
        assert not overuse.is_growing("box", used, LIMIT)
    assert overuse.is_growing("box", LIMIT + 6 * SLACK + 1, LIMIT)


def test_slow_growth_counts_as_growth() -> None:
    overuse = DiskOveruseTracker()
    used = LIMIT + 1
    assert overuse.is_growing("box", used, LIMIT)
    stopped = [overuse.is_growing("box", used + step * SLACK // 4, LIMIT) for step in range(1, 11)]
    assert stopped == [False, False, False, False, True, False, False, False, False, True]


def test_use_below_the_limit_resets_the_count() -> None:
    overuse = DiskOveruseTracker()
    assert overuse.is_growing("box", LIMIT + 1, LIMIT)
    assert not overuse.is_growing("box", LIMIT - 1, LIMIT)
    assert overuse.is_growing("box", LIMIT + 1, LIMIT)
    overuse.keep_only(set())
    assert overuse.is_growing("box", LIMIT + 1, LIMIT)
