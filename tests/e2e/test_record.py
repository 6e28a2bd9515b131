"""`paddock sandbox record`, as a person would use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli_driver import Server
from tests.support.screen_images import share_screen_images


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("e2e") / "data")
    share_screen_images(server.data, "desktop")
    server.up()
    yield server
    server.run("sandbox", "rm", "--all", "--yes")
    assert server.down() == 0


def test_a_recording_from_start_to_film(server: Server, tmp_path: Path) -> None:
    sandbox = server.text("sandbox", "create", "--kind", "linux")
    recording = server.text("sandbox", "record", "start", sandbox, "--fps", "10")
    assert recording.startswith("rec-")
    (listed,) = server.json("sandbox", "record", "list", sandbox)
    assert (listed["id"], listed["state"]) == (recording, "recording")
    assert re.fullmatch(rf"{recording}  \d+ frames?, [\d.]+ KiB", server.text("sandbox", "record", "stop", sandbox))
    assert re.search(rf"^{recording}  stopped +{sandbox}", server.text("sandbox", "record", "list"), re.MULTILINE)
    server.text("sandbox", "rm", sandbox)
    # The recording outlives its sandbox, and is still found by it.
    for name, start in (("film.mp4", b"ftyp"), ("film.gif", b"GIF89a"), ("film.padrec", b'{"format": "padrec"')):
        server.text("sandbox", "record", "export", sandbox, "-o", str(tmp_path / name))
        assert start in (tmp_path / name).read_bytes()[:32]
    assert recording in server.text("sandbox", "record", "list")
    server.text("sandbox", "record", "rm", sandbox, recording)
    assert server.json("sandbox", "record", "list") == []


def test_mistakes_are_explained(server: Server) -> None:
    sandbox = server.text("sandbox", "create", "--image", "host")
    for words, said in (
        (("record", "start", sandbox), "has no screen"),
        (("record", "export", sandbox), "has no recordings"),
        (("record", "export", sandbox, "-o", "film.avi"), "use mp4, gif, mkv, padrec"),
        (("record", "start", sandbox, "--max-size", "lots"), "not a size"),
    ):
        done = server.run("sandbox", *words)
        assert done.returncode != 0
        assert said in done.stderr.decode(), done.stderr
        assert len(done.stderr.splitlines()) <= 2
