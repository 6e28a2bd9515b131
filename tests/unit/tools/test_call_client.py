"""Disconnecting clients, and their removal from the queue of the lock."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from paddock.inside.tools.caller_connection import CallerConnection, CallerDisconnected, FairLock


class ClientConnection:
    """A socket pair with a tool call client."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.ours = ours
        self.caller = CallerConnection(ours)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def lines() -> Iterator[list[ClientConnection]]:
    made = [ClientConnection() for _ in range(3)]
    yield made
    for line in made:
        line.close()


def test_half_closed_client_is_still_connected(lines: list[ClientConnection]) -> None:
    lines[0].theirs.sendall(b"more")
    lines[0].theirs.shutdown(socket.SHUT_WR)
    lines[0].caller.raise_if_disconnected()
    lines[0].caller.sleep(0.001)


def test_closed_client_is_disconnected(lines: list[ClientConnection]) -> None:
    lines[0].theirs.close()
    assert lines[0].caller.has_disconnected
    with pytest.raises(CallerDisconnected):
        lines[0].caller.sleep(60)


def test_client_without_connection_never_disconnects() -> None:
    CallerConnection().raise_if_disconnected()
    CallerConnection().sleep(0.001)
    assert CallerConnection().fileno() < 0


def test_lock_is_exclusive_and_times_out() -> None:
    lock = FairLock()
    assert lock.acquire(CallerConnection(), 0)
    assert not lock.acquire(CallerConnection(), 0.001)
    lock.release()
    assert lock.acquire(CallerConnection(), 0)


def queue_length(lock: FairLock) -> int:
    return len(lock._waiting)


def wait_until_queued(lock: FairLock, number: int) -> None:
    tick = threading.Event()
    for _ in range(2000):
        if queue_length(lock) == number:
            return
        tick.wait(0.005)
    raise AssertionError("the calls were never queued")


def test_lock_is_fair_and_skips_disconnected_clients(lines: list[ClientConnection]) -> None:
    lock, order = FairLock(), []

    def take(number: int) -> None:
        assert lock.acquire(lines[number].caller, 20)
        order.append(number)
        lock.release()

    assert lock.acquire(CallerConnection(), 0)
    with ThreadPoolExecutor(3) as pool:
        queued = []
        for number in range(3):
            queued.append(pool.submit(take, number))
            wait_until_queued(lock, number + 1)
        lines[1].theirs.close()
        with pytest.raises(CallerDisconnected):
            queued[1].result(5)
        assert queue_length(lock) == 2
        lock.release()
        queued[0].result(5)
        queued[2].result(5)
    assert order == [0, 2]


def test_lock_granted_to_a_disconnected_client_is_passed_on(lines: list[ClientConnection]) -> None:
    lines[0].theirs.close()
    lock = FairLock()
    assert lock.acquire(CallerConnection(), 0)

    class DisconnectingClient(CallerConnection):
        """Disconnects in the moment in which it gets the lock."""

        def register_with(self, poller: object) -> None:
            lock.release()

        @property
        def has_disconnected(self) -> bool:
            return True

    with pytest.raises(CallerDisconnected):
        lock.acquire(DisconnectingClient(), 20)
    assert lock.acquire(CallerConnection(), 0)
