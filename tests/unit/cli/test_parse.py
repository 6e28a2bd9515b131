from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.cli import parse
from paddock.cli.copy import Place, parse_place
from paddock.cli.failure import UsageProblem
from paddock.cli.find import Ambiguous, NoSuchSandbox, choose
from paddock.cli.output import ago, pairs, plain, size, span, until


def test_assignments() -> None:
    assert parse.assignments(["A=1", "B=x=y", "A=2", "C="], "--env") == {"A": "2", "B": "x=y", "C": ""}


@pytest.mark.parametrize("text", ["A", "=1", ""])
def test_bad_assignments(text: str) -> None:
    with pytest.raises(UsageProblem, match="is not NAME=VALUE"):
        parse.assignments([text], "--metadata")


def test_environment_from_files_arguments_and_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "seen")
    file = tmp_path / "env"
    file.write_text("# comment\n\nexport A=1\nB = 'two words' \nC=\"x\"\nD=it's\n")
    assert parse.environment(["A=9", "HERE"], [file]) == {
        "A": "9", "B": "two words", "C": "x", "D": "it's", "HERE": "seen",
    }  # fmt: skip
    with pytest.raises(UsageProblem, match="no such variable"):
        parse.environment(["NOT_SET_ANYWHERE"])
    file.write_text("A=1\nnonsense\n")
    with pytest.raises(UsageProblem, match=r"env:2: 'nonsense'"):
        parse.environment([], [file])
    with pytest.raises(UsageProblem, match="cannot be read"):
        parse.environment([], [tmp_path / "missing"])


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("/srv:/data", {"host": {"path": "/srv"}, "mountPath": "/data", "readOnly": False}),
        ("/srv:/data:ro", {"host": {"path": "/srv"}, "mountPath": "/data", "readOnly": True}),
        ("cache:/cache", {"pvc": {"claimName": "cache"}, "mountPath": "/cache", "readOnly": False}),
    ],
)
def test_volumes(text: str, volume: dict[str, Any]) -> None:
    assert parse.volumes([text]) == [{"name": "volume-1", **volume}]


@pytest.mark.parametrize("text", ["", "a", "a:b", "a:/b:rx", ":/b", "a:/b:ro:x"])
def test_bad_volumes(text: str) -> None:
    with pytest.raises(UsageProblem):
        parse.volumes([text])


def test_relative_volume_sources_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse.volumes(["./here:/x"])[0]["host"] == {"path": str(tmp_path / "here")}


def test_lifetimes_and_limits() -> None:
    assert parse.lifetime(None) == {}
    assert parse.lifetime("none") == {"timeout": None}
    assert parse.lifetime("1h30m") == {"timeout": 5400}
    assert parse.lifetime("10ms") == {"timeout": 1}
    assert parse.resource_limits(cpu="500m", memory=None, disk="2Gi") == {"cpu": "500m", "disk": "2Gi"}
    for bad in ("0", "x", "-1"):
        with pytest.raises(UsageProblem):
            parse.lifetime(bad)
    with pytest.raises(UsageProblem, match="--cpu"):
        parse.resource_limits(cpu="many")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("file", Place(None, "file")),
        ("./a:b", Place(None, "./a:b")),
        ("/a:b", Place(None, "/a:b")),
        ("3f2a:/w", Place("3f2a", "/w")),
        ("name:/a:b", Place("name", "/a:b")),
        ("win:C:\\a b.txt", Place("win", "C:\\a b.txt")),
        ("win:c:/a", Place("win", "c:/a")),
    ],
)
def test_places(text: str, place: Place) -> None:
    assert parse_place(text) == place


def test_a_place_needs_an_absolute_path() -> None:
    with pytest.raises(UsageProblem):
        parse_place("3f2a:relative")
    with pytest.raises(UsageProblem):
        parse_place("3f2a:C:relative")
    with pytest.raises(UsageProblem, match=r"as in 3f2a:/home/agent/apps\.json"):
        parse_place("3f2a:~/apps.json")


def test_a_sandbox_is_found_by_id_prefix_or_name() -> None:
    boxes: list[dict[str, Any]] = [
        {"id": "sb-aa11", "metadata": {"name": "web"}},
        {"id": "sb-aa22"},
        {"id": "sb-b", "metadata": {"name": "aa"}},
    ]
    assert choose(boxes, "sb-aa11") == "sb-aa11"
    assert choose(boxes, "sb-aa1") == choose(boxes, "aa1") == choose(boxes, "web") == "sb-aa11"
    assert choose(boxes, "aa") == "sb-b"
    with pytest.raises(Ambiguous, match="sb-aa11, sb-aa22"):
        choose(boxes, "sb-aa")
    for unknown in ("c", ""):
        with pytest.raises(NoSuchSandbox):
            choose(boxes, unknown)


def test_times_and_sizes_for_people() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert [span(s) for s in (0, 59, 90, 120, 7199, 7200, 86400, 200000)] == [
        "0s",
        "59s",
        "90s",
        "2m",
        "119m",
        "2h",
        "1d",
        "2d",
    ]
    assert ago(now - timedelta(minutes=5), now) == "5m"
    assert (until(None), until(now, now), until(now + timedelta(hours=3), now)) == ("never", "now", "in 3h")
    assert [size(n) for n in (0, 1023, 1024, 1536 * 2**20, 2**50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 GiB",
        "1024.0 TiB",
    ]
    assert pairs({"a": "x", "n": 1, "m": {"k": True}}) == "a=x n=1 m.k=true"


def test_what_boxes_say_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in plain("\x1b]0;owned\x07") and plain("grün 日本") == "grün 日本"
