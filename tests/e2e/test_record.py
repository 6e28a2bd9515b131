"""`paddock sandbox record`, as a person would use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.driver import Server
from tests.screens import share_screens


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("e2e") / "data")
    share_screens(server.data, "desktop")
    server.up()
    yield server
    server.run("sandbox", "rm", "--all", "--yes")
    assert server.down() == 0


def test_a_recording_from_start_to_film(server: Server, tmp_path: Path) -> None:
    box = server.text("sandbox", "create", "--kind", "linux")
    recording = server.text("sandbox", "record", "start", box, "--fps", "10")
    assert recording.startswith("rec-")
    (listed,) = server.json("sandbox", "record", "list", box)
    assert (listed["id"], listed["state"]) == (recording, "recording")
    assert re.fullmatch(rf"{recording}  \d+ pictures?, [\d.]+ KiB", server.text("sandbox", "record", "stop", box))
    assert re.search(rf"^{recording}  stopped +{box}", server.text("sandbox", "record", "list"), re.MULTILINE)
    server.text("sandbox", "rm", box)
    # The recording outlives its sandbox, and is still found by it.
    for name, start in (("film.mp4", b"ftyp"), ("film.gif", b"GIF89a"), ("film.padrec", b'{"format": "padrec"')):
        server.text("sandbox", "record", "export", box, "-o", str(tmp_path / name))
        assert start in (tmp_path / name).read_bytes()[:32]
    assert recording in server.text("sandbox", "record", "list")
    server.text("sandbox", "record", "rm", box, recording)
    assert server.json("sandbox", "record", "list") == []


def test_mistakes_are_explained(server: Server) -> None:
    box = server.text("sandbox", "create", "--image", "host")
    for words, said in (
        (("record", "start", box), "has no screen"),
        (("record", "export", box), "has no recordings"),
        (("record", "export", box, "-o", "film.avi"), "films are mp4, gif, mkv, padrec"),
        (("record", "start", box, "--max-size", "lots"), "not a size"),
    ):
        done = server.run("sandbox", *words)
        assert done.returncode != 0
        assert said in done.stderr.decode(), done.stderr
        assert len(done.stderr.splitlines()) <= 2
