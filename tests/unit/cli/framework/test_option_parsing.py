from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.framework import option_parsing
from paddock.cli.output.errors import UsageError
from paddock.cli.output.formatting import (
    format_age,
    format_elapsed,
    format_pairs,
    format_size,
    format_time_left,
    sanitize_text,
)
from paddock.cli.sandbox.copy_command import CopyEndpoint, parse_copy_endpoint
from paddock.cli.sandbox.sandbox_lookup import AmbiguousName, NoSuchSandbox, choose_sandbox


def test_assignments() -> None:
    assert option_parsing.parse_assignments(["A=1", "B=x=y", "A=2", "C="], "--env") == {"A": "2", "B": "x=y", "C": ""}


@pytest.mark.parametrize("text", ["A", "=1", ""])
def test_bad_assignments(text: str) -> None:
    with pytest.raises(UsageError, match="is not NAME=VALUE"):
        option_parsing.parse_assignments([text], "--metadata")


def test_environment_from_files_arguments_and_this_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "seen")
    file = tmp_path / "env"
    file.write_text("# comment\n\nexport A=1\nB = 'two words' \nC=\"x\"\nD=it's\n")
    assert option_parsing.parse_environment(["A=9", "HERE"], [file]) == {
        "A": "9", "B": "two words", "C": "x", "D": "it's", "HERE": "seen",
    }  # fmt: skip
    with pytest.raises(UsageError, match="this variable is not set here"):
        option_parsing.parse_environment(["NOT_SET_ANYWHERE"])
    file.write_text("A=1\nnonsense\n")
    with pytest.raises(UsageError, match=r"env:2: 'nonsense'"):
        option_parsing.parse_environment([], [file])
    with pytest.raises(UsageError, match="cannot be read"):
        option_parsing.parse_environment([], [tmp_path / "missing"])


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("/srv:/data", {"host": {"path": "/srv"}, "mountPath": "/data", "readOnly": False}),
        ("/srv:/data:ro", {"host": {"path": "/srv"}, "mountPath": "/data", "readOnly": True}),
        ("cache:/cache", {"pvc": {"claimName": "cache"}, "mountPath": "/cache", "readOnly": False}),
    ],
)
def test_volumes(text: str, volume: dict[str, Any]) -> None:
    assert option_parsing.parse_volumes([text]) == [{"name": "volume-1", **volume}]


@pytest.mark.parametrize("text", ["", "a", "a:b", "a:/b:rx", ":/b", "a:/b:ro:x"])
def test_bad_volumes(text: str) -> None:
    with pytest.raises(UsageError):
        option_parsing.parse_volumes([text])


def test_relative_volume_sources_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert option_parsing.parse_volumes(["./here:/x"])[0]["host"] == {"path": str(tmp_path / "here")}


def test_lifetimes_and_limits() -> None:
    assert option_parsing.parse_lifetime(None) == {}
    assert option_parsing.parse_lifetime("none") == {"timeout": None}
    assert option_parsing.parse_lifetime("1h30m") == {"timeout": 5400}
    assert option_parsing.parse_lifetime("10ms") == {"timeout": 1}
    assert option_parsing.parse_resource_limits(cpu="500m", memory=None, disk="2Gi") == {"cpu": "500m", "disk": "2Gi"}
    for bad in ("0", "x", "-1"):
        with pytest.raises(UsageError):
            option_parsing.parse_lifetime(bad)
    with pytest.raises(UsageError, match="--cpu"):
        option_parsing.parse_resource_limits(cpu="many")


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("file", CopyEndpoint(None, "file")),
        ("./a:b", CopyEndpoint(None, "./a:b")),
        ("/a:b", CopyEndpoint(None, "/a:b")),
        ("3f2a:/w", CopyEndpoint("3f2a", "/w")),
        ("name:/a:b", CopyEndpoint("name", "/a:b")),
        ("win:C:\\a b.txt", CopyEndpoint("win", "C:\\a b.txt")),
        ("win:c:/a", CopyEndpoint("win", "c:/a")),
    ],
)
def test_copy_endpoints(text: str, endpoint: CopyEndpoint) -> None:
    assert parse_copy_endpoint(text) == endpoint


def test_copy_endpoint_in_a_sandbox_needs_an_absolute_path() -> None:
    with pytest.raises(UsageError):
        parse_copy_endpoint("3f2a:relative")
    with pytest.raises(UsageError):
        parse_copy_endpoint("3f2a:C:relative")
    with pytest.raises(UsageError, match=r"for example 3f2a:/home/agent/apps\.json"):
        parse_copy_endpoint("3f2a:~/apps.json")


def test_a_sandbox_is_found_by_id_prefix_or_name() -> None:
    sandboxes: list[dict[str, Any]] = [
        {"id": "sb-aa11", "metadata": {"name": "web"}},
        {"id": "sb-aa22"},
        {"id": "sb-b", "metadata": {"name": "aa"}},
    ]
    assert choose_sandbox(sandboxes, "sb-aa11") == "sb-aa11"
    assert (
        choose_sandbox(sandboxes, "sb-aa1")
        == choose_sandbox(sandboxes, "aa1")
        == choose_sandbox(sandboxes, "web")
        == "sb-aa11"
    )
    assert choose_sandbox(sandboxes, "aa") == "sb-b"
    with pytest.raises(AmbiguousName, match="sb-aa11, sb-aa22"):
        choose_sandbox(sandboxes, "sb-aa")
    for unknown in ("c", ""):
        with pytest.raises(NoSuchSandbox):
            choose_sandbox(sandboxes, unknown)


def test_times_and_sizes_are_human_readable() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert [format_elapsed(s) for s in (0, 59, 90, 120, 7199, 7200, 86400, 200000)] == [
        "0s",
        "59s",
        "90s",
        "2m",
        "119m",
        "2h",
        "1d",
        "2d",
    ]
    assert format_age(now - timedelta(minutes=5), now) == "5m"
    assert (format_time_left(None), format_time_left(now, now), format_time_left(now + timedelta(hours=3), now)) == (
        "never",
        "now",
        "in 3h",
    )
    assert [format_size(n) for n in (0, 1023, 1024, 1536 * 2**20, 2**50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 GiB",
        "1024.0 TiB",
    ]
    assert format_pairs({"a": "x", "n": 1, "m": {"k": True}}) == "a=x n=1 m.k=true"


def test_control_characters_of_sandboxes_are_replaced() -> None:
    assert "\x1b" not in sanitize_text("\x1b]0;owned\x07") and sanitize_text("grün 日本") == "grün 日本"
