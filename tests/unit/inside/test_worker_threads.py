"""Threads that the daemon keeps for times when it gets no new ones."""

from __future__ import annotations

import threading
import time

import pytest

from paddock.inside.http.worker_threads import WorkerThreads


def refuse_new_threads(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_jobs_use_reserved_threads_and_then_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = WorkerThreads(reserve=2)
    monkeypatch.setattr(threading.Thread, "start", refuse_new_threads)
    release, started, done = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)

    def wait_for_release() -> None:
        started.release()
        assert release.wait(10)

    for _ in range(2):
        threads.run(wait_for_release)
    assert started.acquire(timeout=10) and started.acquire(timeout=10)
    assert not threads.exhausted
    threads.run(done.release)
    assert threads.exhausted
    release.set()
    assert done.acquire(timeout=10)
    assert not threads.exhausted


def test_failed_job_keeps_its_thread(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    threads = WorkerThreads(reserve=1)
    monkeypatch.setattr(threading.Thread, "start", refuse_new_threads)
    done = threading.Event()
    threads.run(lambda: [][0])
    threads.run(done.set)
    assert done.wait(10)
    assert "IndexError" in capfd.readouterr().err


def test_idle_threads_above_the_reserve_end() -> None:
    before = threading.active_count()
    threads = WorkerThreads(reserve=1)
    barrier = threading.Barrier(9)

    def meet() -> None:
        barrier.wait(10)

    for _ in range(8):
        threads.run(meet)
    meet()
    deadline = time.monotonic() + 10
    while threading.active_count() > before + 1:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    done = threading.Event()
    threads.run(done.set)
    assert done.wait(10)
