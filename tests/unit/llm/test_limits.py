"""How much may be asked at once and per minute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config.llm import RateConfig
from paddock.errors import QuotaExceeded
from paddock.llm.callers import Holder
from paddock.llm.exchange import Caller
from paddock.llm.limits import Limits, Permit, TooMany
from paddock.model.keys import Rates

FREE = RateConfig()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def holder(key: str = "k1", tenant: str = "acme", **limits: int) -> Holder:
    return Holder(Caller(tenant, key), limits=Rates(**limits))


def enter(
    limits: Limits, who: Holder | None, route: RateConfig = FREE, provider: RateConfig = FREE, name: str = "m"
) -> Permit:
    return limits.enter(who, name, route, "p", provider)


def test_nothing_is_kept_of_what_is_not_limited() -> None:
    limits = Limits()
    permits = [enter(limits, holder()) for _ in range(1000)]
    for permit in permits:
        permit.leave(5)
        permit.leave(5)
    assert len(limits) == 0


@pytest.mark.parametrize("subject", ["key", "tenant", "route", "provider"])
def test_as_many_at_a_time_as_each_may(subject: str) -> None:
    two = RateConfig(concurrency=2)
    limits = Limits(two if subject == "tenant" else FREE)
    who = holder(concurrency=2) if subject == "key" else holder()

    def one() -> Permit:
        return enter(limits, who, two if subject == "route" else FREE, two if subject == "provider" else FREE)

    first, _ = one(), one()
    with pytest.raises(TooMany, match="2 requests under way") as raised:
        one()
    assert raised.value.retry_after == 1
    assert isinstance(raised.value, QuotaExceeded)
    first.leave()
    first.leave()
    one()
    with pytest.raises(TooMany):
        one()


def test_each_key_tenant_and_route_has_its_own_room() -> None:
    limits = Limits(RateConfig(concurrency=2))
    one = RateConfig(concurrency=1)
    enter(limits, holder("a", concurrency=1), one, name="x")
    enter(limits, holder("b", concurrency=1), one, name="y")
    with pytest.raises(TooMany, match="tenant acme"):
        enter(limits, holder("c", concurrency=1), one, name="z")
    enter(limits, holder("c", "other", concurrency=1), one, name="z")


def test_what_is_refused_counts_nowhere() -> None:
    limits = Limits()
    who = holder(concurrency=5, requests_per_minute=5)
    busy = enter(limits, None, RateConfig(concurrency=1))
    for _ in range(20):
        with pytest.raises(TooMany, match="model m"):
            enter(limits, who, RateConfig(concurrency=1))
    busy.leave()
    for _ in range(5):
        enter(limits, who)


def test_requests_within_any_minute() -> None:
    clock = Clock()
    limits = Limits(clock=clock)
    who = holder(requests_per_minute=3)
    for _ in range(3):
        enter(limits, who).leave()
        clock.now += 10
    with pytest.raises(TooMany, match="3 requests per minute") as raised:
        enter(limits, who)
    clock.now += raised.value.retry_after - 0.01
    with pytest.raises(TooMany):
        enter(limits, who)
    clock.now += 0.02
    enter(limits, who).leave()
    with pytest.raises(TooMany):
        enter(limits, who)


def test_tokens_are_charged_when_they_are_known() -> None:
    clock = Clock()
    limits = Limits(clock=clock)
    who = holder(tokens_per_minute=100)
    first, second = enter(limits, who), enter(limits, who)
    first.leave(99)
    enter(limits, who).leave(0)
    second.leave(500)
    with pytest.raises(TooMany, match="100 tokens per minute") as raised:
        enter(limits, who)
    assert 59 < raised.value.retry_after <= 61
    clock.now += raised.value.retry_after
    enter(limits, who)


def test_the_longest_wait_is_told() -> None:
    clock = Clock()
    limits = Limits(clock=clock)
    who = holder(concurrency=1, requests_per_minute=1, tokens_per_minute=1)
    permit = enter(limits, who)
    clock.now += 30
    with pytest.raises(TooMany, match="requests per minute"):
        enter(limits, who)
    permit.leave(7)
    with pytest.raises(TooMany, match="tokens per minute") as raised:
        enter(limits, who)
    assert raised.value.retry_after == 61


def test_a_fallback_counts_for_its_route_but_not_again_for_its_caller() -> None:
    limits = Limits()
    who = holder(concurrency=1)
    enter(limits, who)
    enter(limits, None, RateConfig(concurrency=1), name="other")
    with pytest.raises(TooMany, match="model other"):
        enter(limits, None, RateConfig(concurrency=1), name="other")


def test_who_is_idle_is_forgotten() -> None:
    clock = Clock()
    limits = Limits(clock=clock)
    for number in range(1000):
        enter(limits, holder(f"c{number}", concurrency=1)).leave()
    assert len(limits) == 0
    for number in range(1000):
        enter(limits, holder(f"r{number}", requests_per_minute=5)).leave(3)
    held = enter(limits, holder("held", requests_per_minute=5))
    assert len(limits) == 1001
    clock.now += 61
    enter(limits, holder("last", requests_per_minute=5))
    assert len(limits) == 2
    held.leave()


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.floats(0, 40), st.booleans()), max_size=60),
)
def test_no_minute_ever_has_more_than_it_may(bound: int, steps: list[tuple[float, bool]]) -> None:
    clock = Clock()
    limits = Limits(clock=clock)
    who = holder(requests_per_minute=bound)
    begun: list[float] = []
    for pause, patient in steps:
        clock.now += pause
        try:
            enter(limits, who).leave()
        except TooMany as error:
            if not patient:
                continue
            clock.now += error.retry_after + 1e-6
            enter(limits, who).leave()  # Whoever waits as told is let in.
        begun.append(clock.now)
        assert sum(moment > clock.now - 60 for moment in begun) <= bound
