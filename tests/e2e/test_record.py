"""`paddock sandbox record`: recording, listing and exporting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli_driver import PaddockCliServer
from tests.support.screen_images import share_screen_images


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockCliServer]:
    server = PaddockCliServer(tmp_path_factory.mktemp("e2e") / "data")
    share_screen_images(server.data, "desktop")
    server.start_server()
    yield server
    server.run("sandbox", "rm", "--all", "--yes")
    assert server.stop_server() == 0


def test_recording_is_stopped_listed_and_exported(server: PaddockCliServer, tmp_path: Path) -> None:
    sandbox = server.output("sandbox", "create", "--kind", "linux")
    recording = server.output("sandbox", "record", "start", sandbox, "--fps", "10")
    assert recording.startswith("rec-")
    (listed,) = server.json_output("sandbox", "record", "list", sandbox)
    assert (listed["id"], listed["state"]) == (recording, "recording")
    assert re.fullmatch(rf"{recording}  \d+ frames?, [\d.]+ KiB", server.output("sandbox", "record", "stop", sandbox))
    assert re.search(rf"^{recording}  stopped +{sandbox}", server.output("sandbox", "record", "list"), re.MULTILINE)
    server.output("sandbox", "rm", sandbox)
    # The recording outlives its sandbox and is still found by its id.
    for name, start in (("film.mp4", b"ftyp"), ("film.gif", b"GIF89a"), ("film.padrec", b'{"format": "padrec"')):
        server.output("sandbox", "record", "export", sandbox, "-o", str(tmp_path / name))
        assert start in (tmp_path / name).read_bytes()[:32]
    assert recording in server.output("sandbox", "record", "list")
    server.output("sandbox", "record", "rm", sandbox, recording)
    assert server.json_output("sandbox", "record", "list") == []


def test_invalid_recordings_print_an_error(server: PaddockCliServer) -> None:
    sandbox = server.output("sandbox", "create", "--image", "host")
    for arguments, message in (
        (("record", "start", sandbox), "has no screen"),
        (("record", "export", sandbox), "has no recordings"),
        (("record", "export", sandbox, "-o", "film.avi"), "use mp4, gif, mkv, padrec"),
        (("record", "start", sandbox, "--max-size", "lots"), "not a size"),
    ):
        result = server.run("sandbox", *arguments)
        assert result.returncode != 0
        assert message in result.stderr.decode(), result.stderr
        assert len(result.stderr.splitlines()) <= 2
