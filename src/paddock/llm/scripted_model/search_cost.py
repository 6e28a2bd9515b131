"""Bound the time of a regular expression search before it runs: the `re` module can neither be interrupted nor limited.

A bound follows from the pattern and the length of the text. Patterns such as `(a+)+$` have none that is useful.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants as sre
from re import _parser as sre_parser
from typing import Any

UNBOUNDED = 10**12
"""The cost of a search that may take forever."""
_STEPS_PER_MEMBER = 0.25
_ANCHORS = (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING)


class StepBoundedPattern:
    """A compiled pattern that knows how many steps a search takes at most."""

    __slots__ = ("_costs", "_parsed", "compiled")

    def __init__(self, pattern: str) -> None:
        self.compiled = re.compile(pattern)
        self._parsed = sre_parser.parse(pattern)
        self._costs: dict[int, int] = {}

    def most_steps(self, length: int) -> int:
        """Return an upper bound of the steps of a search in a text of some length, at most `UNBOUNDED`."""
        rounded = 1 << length.bit_length()
        found = self._costs.get(rounded)
        if found is None:
            found = self._costs[rounded] = self._compute_steps(rounded)
        return found

    def _compute_steps(self, length: int) -> int:
        items = list(self._parsed)
        steps, ways = _sequence_cost(items[:-1], length)
        once = 0.0
        if items:
            # Nothing follows the last item, so what it can repeat is repeated once, by the match.
            last, once = _last_item_cost(items[-1], length)
            steps += ways * last
        first = items[0] if items else None
        anchored = (
            first is not None and first[0] is sre.AT and first[1] in _ANCHORS and not self.compiled.flags & re.MULTILINE
        )
        return min(UNBOUNDED, int(once + (length + steps if anchored else (length + 1) * (1 + steps))))


def _sequence_cost(items: Iterable[tuple[Any, Any]], length: int) -> tuple[float, float]:
    """Return the most steps to try all ways to match a sequence at one position, and the number of these ways."""
    steps, ways = 0.0, 1.0
    for operation, argument in items:
        own_steps, own_ways = _item_cost(operation, argument, length)
        steps += ways * own_steps
        ways *= own_ways
        if steps > UNBOUNDED or ways > UNBOUNDED:
            return UNBOUNDED, UNBOUNDED
    return steps, ways


def _item_cost(operation: Any, argument: Any, length: int) -> tuple[float, float]:
    if operation in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.AT):
        return 1, 1
    if operation is sre.IN:
        return 1 + _STEPS_PER_MEMBER * len(argument), 1
    if operation is sre.SUBPATTERN:
        return _sequence_cost(argument[-1], length)
    if operation is sre.BRANCH:
        costs = [_sequence_cost(branch, length) for branch in argument[1]]
        return sum(steps for steps, _ in costs), sum(ways for _, ways in costs)
    if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, most, items = argument
        steps, ways = _repeat_cost(int(least), int(most), items, length)
        return steps, 1 if operation is sre.POSSESSIVE_REPEAT else ways
    if operation in (sre.ASSERT, sre.ASSERT_NOT):
        return _sequence_cost(argument[1], length)[0], 1
    if operation is sre.ATOMIC_GROUP:
        return _sequence_cost(argument, length)[0], 1
    if operation is sre.GROUPREF:
        return length, 1
    return UNBOUNDED, UNBOUNDED


def _last_item_cost(item: tuple[Any, Any], length: int) -> tuple[float, float]:
    """Return the most steps to try the last item of a pattern at one position, and the steps of its match."""
    operation, argument = item
    if operation is sre.SUBPATTERN and len(argument[-1]):
        *before, last = argument[-1]
        steps, ways = _sequence_cost(before, length)
        each, once = _last_item_cost(last, length)
        return steps + ways * each, once
    if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, most, items = argument
        steps, ways = _sequence_cost(items, length)
        if ways <= 1:
            return 1 + int(least) * steps, min(int(most), length) * steps
    return _item_cost(operation, argument, length)[0], 0


def _repeat_cost(least: int, most: int, items: Iterable[tuple[Any, Any]], length: int) -> tuple[float, float]:
    steps, ways = _sequence_cost(items, length)
    times = min(most, max(length, least))
    if ways <= 1:
        return 1 + times * steps, max(1, times - least + 1)
    # Each repetition can go each way: the number of ways grows exponentially.
    total = 0.0
    for number in range(times + 1):
        total += ways**number
        if total > UNBOUNDED:
            return UNBOUNDED, UNBOUNDED
    return min(UNBOUNDED, total * steps), total
