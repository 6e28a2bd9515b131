"""Limits on concurrent requests and on requests and tokens per minute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config.llm import RateLimitsConfig
from paddock.errors import QuotaExceeded
from paddock.llm.exchange import ModelCaller
from paddock.llm.metering.key_authentication import KeyHolder
from paddock.llm.metering.rate_limits import RateLimited, RateLimitPermit, RateLimits
from paddock.model.keys import KeyRateLimits

FREE = RateLimitsConfig()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def holder(key: str = "k1", tenant: str = "acme", **limits: int) -> KeyHolder:
    return KeyHolder(ModelCaller(tenant, key), limits=KeyRateLimits(**limits))


def admit_request(
    limits: RateLimits,
    key_holder: KeyHolder | None,
    route: RateLimitsConfig = FREE,
    provider: RateLimitsConfig = FREE,
    name: str = "m",
) -> RateLimitPermit:
    return limits.admit(key_holder, name, route, "p", provider)


def test_unlimited_subjects_have_no_meter() -> None:
    limits = RateLimits()
    permits = [admit_request(limits, holder()) for _ in range(1000)]
    for permit in permits:
        permit.release(5)
        permit.release(5)
    assert len(limits) == 0


@pytest.mark.parametrize("subject", ["key", "tenant", "route", "provider"])
def test_concurrency_limits(subject: str) -> None:
    two = RateLimitsConfig(concurrency=2)
    limits = RateLimits(two if subject == "tenant" else FREE)
    key_holder = holder(concurrency=2) if subject == "key" else holder()

    def one() -> RateLimitPermit:
        return admit_request(
            limits, key_holder, two if subject == "route" else FREE, two if subject == "provider" else FREE
        )

    first, _ = one(), one()
    with pytest.raises(RateLimited, match="limit of 2 concurrent requests") as raised:
        one()
    assert raised.value.retry_after == 1
    assert isinstance(raised.value, QuotaExceeded)
    first.release()
    first.release()
    one()
    with pytest.raises(RateLimited):
        one()


def test_limits_of_keys_tenants_and_routes_are_separate() -> None:
    limits = RateLimits(RateLimitsConfig(concurrency=2))
    one = RateLimitsConfig(concurrency=1)
    admit_request(limits, holder("a", concurrency=1), one, name="x")
    admit_request(limits, holder("b", concurrency=1), one, name="y")
    with pytest.raises(RateLimited, match="tenant acme"):
        admit_request(limits, holder("c", concurrency=1), one, name="z")
    admit_request(limits, holder("c", "other", concurrency=1), one, name="z")


def test_refused_requests_are_not_counted() -> None:
    limits = RateLimits()
    key_holder = holder(concurrency=5, requests_per_minute=5)
    busy = admit_request(limits, None, RateLimitsConfig(concurrency=1))
    for _ in range(20):
        with pytest.raises(RateLimited, match="model m"):
            admit_request(limits, key_holder, RateLimitsConfig(concurrency=1))
    busy.release()
    for _ in range(5):
        admit_request(limits, key_holder)


def test_requests_within_any_minute() -> None:
    clock = Clock()
    limits = RateLimits(clock=clock)
    key_holder = holder(requests_per_minute=3)
    for _ in range(3):
        admit_request(limits, key_holder).release()
        clock.now += 10
    with pytest.raises(RateLimited, match="3 requests per minute") as raised:
        admit_request(limits, key_holder)
    clock.now += raised.value.retry_after - 0.01
    with pytest.raises(RateLimited):
        admit_request(limits, key_holder)
    clock.now += 0.02
    admit_request(limits, key_holder).release()
    with pytest.raises(RateLimited):
        admit_request(limits, key_holder)


def test_tokens_are_counted_at_the_end_of_the_request() -> None:
    clock = Clock()
    limits = RateLimits(clock=clock)
    key_holder = holder(tokens_per_minute=100)
    first, second = admit_request(limits, key_holder), admit_request(limits, key_holder)
    first.release(99)
    admit_request(limits, key_holder).release(0)
    second.release(500)
    with pytest.raises(RateLimited, match="100 tokens per minute") as raised:
        admit_request(limits, key_holder)
    assert 59 < raised.value.retry_after <= 61
    clock.now += raised.value.retry_after
    admit_request(limits, key_holder)


def test_longest_wait_is_reported() -> None:
    clock = Clock()
    limits = RateLimits(clock=clock)
    key_holder = holder(concurrency=1, requests_per_minute=1, tokens_per_minute=1)
    permit = admit_request(limits, key_holder)
    clock.now += 30
    with pytest.raises(RateLimited, match="requests per minute"):
        admit_request(limits, key_holder)
    permit.release(7)
    with pytest.raises(RateLimited, match="tokens per minute") as raised:
        admit_request(limits, key_holder)
    assert raised.value.retry_after == 61


def test_a_fallback_counts_for_its_route_but_not_again_for_its_caller() -> None:
    limits = RateLimits()
    key_holder = holder(concurrency=1)
    admit_request(limits, key_holder)
    admit_request(limits, None, RateLimitsConfig(concurrency=1), name="other")
    with pytest.raises(RateLimited, match="model other"):
        admit_request(limits, None, RateLimitsConfig(concurrency=1), name="other")


def test_idle_meters_are_removed() -> None:
    clock = Clock()
    limits = RateLimits(clock=clock)
    for number in range(1000):
        admit_request(limits, holder(f"c{number}", concurrency=1)).release()
    assert len(limits) == 0
    for number in range(1000):
        admit_request(limits, holder(f"r{number}", requests_per_minute=5)).release(3)
    held = admit_request(limits, holder("held", requests_per_minute=5))
    assert len(limits) == 1001
    clock.now += 61
    admit_request(limits, holder("last", requests_per_minute=5))
    assert len(limits) == 2
    held.release()


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.floats(0, 40), st.booleans()), max_size=60),
)
def test_no_minute_exceeds_its_limit(bound: int, steps: list[tuple[float, bool]]) -> None:
    clock = Clock()
    limits = RateLimits(clock=clock)
    key_holder = holder(requests_per_minute=bound)
    start_times: list[float] = []
    for pause, patient in steps:
        clock.now += pause
        try:
            admit_request(limits, key_holder).release()
        except RateLimited as error:
            if not patient:
                continue
            clock.now += error.retry_after + 1e-6
            admit_request(limits, key_holder).release()  # A client that waits for the reported time is admitted.
        start_times.append(clock.now)
        assert sum(moment > clock.now - 60 for moment in start_times) <= bound
