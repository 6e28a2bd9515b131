"""An upstream that keeps failing is left alone for a while."""

from __future__ import annotations

from paddock.llm.circuits import Circuit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def broken(clock: Clock, failures: int = 3) -> Circuit:
    circuit = Circuit(failures, within=10, first_rest=1, longest_rest=5, clock=clock)
    for _ in range(failures):
        assert circuit.allow() is None
        circuit.failed()
    return circuit


def test_failures_in_a_row_open_it() -> None:
    clock = Clock()
    circuit = Circuit(3, within=10, first_rest=1, clock=clock)
    for _ in range(2):
        circuit.failed()
    assert circuit.allow() is None and not circuit.open
    circuit.failed()
    assert circuit.allow() == 1 and circuit.open
    clock.now += 0.25
    assert circuit.allow() == 0.75


def test_a_success_in_between_keeps_it_closed() -> None:
    circuit = Circuit(3, clock=Clock())
    for _ in range(10):
        circuit.failed()
        circuit.failed()
        circuit.succeeded()
    assert circuit.allow() is None


def test_rare_failures_keep_it_closed() -> None:
    clock = Clock()
    circuit = Circuit(3, within=10, clock=clock)
    for _ in range(20):
        circuit.failed()
        clock.now += 5.1
    assert circuit.allow() is None


def test_one_request_at_a_time_tries_it_after_the_rest() -> None:
    clock = Clock()
    circuit = broken(clock)
    clock.now += 1
    assert circuit.allow() is None
    assert circuit.allow() == 1
    circuit.succeeded()
    assert circuit.allow() is None and circuit.allow() is None and not circuit.open


def test_rests_grow_up_to_a_bound_and_start_over_after_a_success() -> None:
    clock = Clock()
    circuit = broken(clock)
    rests = []
    for _ in range(5):
        rests.append(circuit.allow())
        clock.now += rests[-1] or 0
        assert circuit.allow() is None
        circuit.failed()
    assert rests == [1, 2, 4, 5, 5]
    clock.now += 5
    assert circuit.allow() is None
    circuit.succeeded()
    for _ in range(3):
        circuit.failed()
    assert circuit.allow() == 1


def test_late_failures_do_not_prolong_the_rest() -> None:
    clock = Clock()
    circuit = broken(clock)
    for _ in range(10):
        circuit.failed()
    assert circuit.allow() == 1


def test_a_probe_that_was_given_up_or_lost_makes_room_for_the_next() -> None:
    clock = Clock()
    circuit = broken(clock)
    clock.now += 1
    assert circuit.allow() is None
    circuit.cancelled()
    assert circuit.allow() is None
    assert circuit.allow() is not None
    clock.now += 30
    assert circuit.allow() is None
