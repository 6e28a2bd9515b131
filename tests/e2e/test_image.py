"""Builds of images by the command line, while another has the same image in hand."""

from __future__ import annotations

import signal
import subprocess
import threading

import pytest

from paddock.sandbox.images import ImageStore
from tests.e2e.cli_driver import SECONDS, Server


@pytest.mark.parametrize(
    "words", [("image", "build", "desktop"), ("sandbox", "create", "--kind", "linux")], ids=["build", "create"]
)
def test_who_waits_for_another_build_is_told_so_and_may_stop(server: Server, words: tuple[str, ...]) -> None:
    images = ImageStore(server.data / "images")
    first = images.library.plan("desktop")
    while first.base is not None:
        first = first.base
    with images._directory.claim(first.digest, threading.Event()):
        process = server.start(*words, stderr=subprocess.STDOUT)
        try:
            assert process.stdout is not None
            assert b"waiting for another build" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 130
    assert rest == b"build stopped; its partial result was removed\n"
    assert not list((server.data / "images").glob(".building-*"))
