"""Image builds by the command line while another process builds the same image."""

from __future__ import annotations

import signal
import subprocess
import threading

import pytest

from paddock.sandbox.images import ImageStore
from tests.e2e.cli_driver import COMMAND_TIMEOUT, PaddockCliServer


@pytest.mark.parametrize(
    "arguments", [("image", "build", "desktop"), ("sandbox", "create", "--kind", "linux")], ids=["build", "create"]
)
def test_waiting_for_another_build_is_shown_and_can_be_stopped(
    server: PaddockCliServer, arguments: tuple[str, ...]
) -> None:
    images = ImageStore(server.data / "images")
    first = images.library.plan("desktop")
    while first.base is not None:
        first = first.base
    with images._directory.claim(first.digest, threading.Event()):
        process = server.start(*arguments, stderr=subprocess.STDOUT)
        try:
            assert process.stdout is not None
            assert b"waiting for another build" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=COMMAND_TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 130
    assert rest == b"build stopped; its partial result was removed\n"
    assert not list((server.data / "images").glob(".building-*"))
