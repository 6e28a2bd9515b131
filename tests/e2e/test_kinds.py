"""Kinds and pools by the command line."""

from __future__ import annotations

from tests.e2e.cli_driver import PaddockCliServer


def test_kinds_are_listed_with_titles(server: PaddockCliServer) -> None:
    table = server.output("kind", "list")
    for title in ("Linux (LXDE)", "Chromium", "Windows (Wine)", "Mobile (web)", "Code"):
        assert title in table
    assert [kind["name"] for kind in server.json_output("kind", "list")] == [
        "code",
        "linux",
        "browser",
        "windows",
        "mobile",
    ]


def test_sandbox_shows_its_kind(server: PaddockCliServer) -> None:
    sandbox = server.output("sandbox", "create", "--kind", "linux", "--image", "host", "-q")
    assert server.output("sandbox", "exec", sandbox, "--", "printenv", "PADDOCK_KIND") == "linux"
    row = next(line for line in server.output("sandbox", "list").splitlines() if line.startswith(sandbox))
    assert row.split()[2:4] == ["linux", "host"]
    assert "kind" in server.output("sandbox", "show", sandbox)
    server.output("sandbox", "rm", sandbox)


def test_unknown_kind_error_lists_known_kinds(server: PaddockCliServer) -> None:
    result = server.run("sandbox", "create", "--kind", "windws")
    assert result.returncode == 1
    assert b"did you mean windows? known are: code, linux, browser, windows, mobile" in result.stderr


def test_pool_is_created_listed_resized_and_removed(server: PaddockCliServer) -> None:
    server.output("pool", "create", "desks", "--kind", "linux", "--image", "host", "--size", "0", "--memory", "256Mi")
    [pool] = server.json_output("pool", "list")
    assert (pool["name"], pool["kind"], pool["status"]["revision"]) == ("desks", "linux", "host")
    assert server.json_output("pool", "resize", "desks", "1")["capacitySpec"]["bufferMax"] == 1
    assert "desks" in server.output("pool", "list")
    server.output("pool", "rm", "desks")
    assert server.json_output("pool", "list") == []
    assert b"--kind KIND or --image IMAGE" in server.run("pool", "create", "none").stderr
