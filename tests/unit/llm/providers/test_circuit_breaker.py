"""An upstream that keeps failing gets no requests for a while."""

from __future__ import annotations

from paddock.llm.providers.circuit_breaker import CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def broken(clock: Clock, failures: int = 3) -> CircuitBreaker:
    circuit = CircuitBreaker(failures, within=10, first_rest=1, longest_rest=5, clock=clock)
    for _ in range(failures):
        assert circuit.seconds_until_allowed() is None
        circuit.record_failure()
    return circuit


def test_consecutive_failures_open_the_circuit() -> None:
    clock = Clock()
    circuit = CircuitBreaker(3, within=10, first_rest=1, clock=clock)
    for _ in range(2):
        circuit.record_failure()
    assert circuit.seconds_until_allowed() is None and not circuit.is_open
    circuit.record_failure()
    assert circuit.seconds_until_allowed() == 1 and circuit.is_open
    clock.now += 0.25
    assert circuit.seconds_until_allowed() == 0.75


def test_open_circuit_knows_the_last_problem() -> None:
    circuit = CircuitBreaker(1, clock=Clock())
    circuit.record_failure("the host name is unknown")
    assert (circuit.is_open, circuit.last_problem) == (True, "the host name is unknown")


def test_success_between_failures_leaves_the_circuit_closed() -> None:
    circuit = CircuitBreaker(3, clock=Clock())
    for _ in range(10):
        circuit.record_failure()
        circuit.record_failure()
        circuit.record_success()
    assert circuit.seconds_until_allowed() is None


def test_rare_failures_leave_the_circuit_closed() -> None:
    clock = Clock()
    circuit = CircuitBreaker(3, within=10, clock=clock)
    for _ in range(20):
        circuit.record_failure()
        clock.now += 5.1
    assert circuit.seconds_until_allowed() is None


def test_one_probe_at_a_time_after_the_pause() -> None:
    clock = Clock()
    circuit = broken(clock)
    clock.now += 1
    assert circuit.seconds_until_allowed() is None
    assert circuit.seconds_until_allowed() == 1
    circuit.record_success()
    assert circuit.seconds_until_allowed() is None and circuit.seconds_until_allowed() is None and not circuit.is_open


def test_pauses_grow_to_a_bound_and_reset_after_a_success() -> None:
    clock = Clock()
    circuit = broken(clock)
    rests = []
    for _ in range(5):
        rests.append(circuit.seconds_until_allowed())
        clock.now += rests[-1] or 0
        assert circuit.seconds_until_allowed() is None
        circuit.record_failure()
    assert rests == [1, 2, 4, 5, 5]
    clock.now += 5
    assert circuit.seconds_until_allowed() is None
    circuit.record_success()
    for _ in range(3):
        circuit.record_failure()
    assert circuit.seconds_until_allowed() == 1


def test_late_failures_do_not_prolong_the_pause() -> None:
    clock = Clock()
    circuit = broken(clock)
    for _ in range(10):
        circuit.record_failure()
    assert circuit.seconds_until_allowed() == 1


def test_cancelled_or_lost_probe_allows_the_next() -> None:
    clock = Clock()
    circuit = broken(clock)
    clock.now += 1
    assert circuit.seconds_until_allowed() is None
    circuit.record_cancellation()
    assert circuit.seconds_until_allowed() is None
    assert circuit.seconds_until_allowed() is not None
    clock.now += 30
    assert circuit.seconds_until_allowed() is None
