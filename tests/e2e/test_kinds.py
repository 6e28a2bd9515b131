"""Kinds and pools, as a person asks for them."""

from __future__ import annotations

from tests.e2e.cli_driver import Server


def test_kinds_are_listed_with_what_they_are(server: Server) -> None:
    table = server.text("kind", "list")
    for title in ("Linux (LXDE)", "Chromium", "Windows (Wine)", "Mobile (web)", "Code"):
        assert title in table
    assert [kind["name"] for kind in server.json("kind", "list")] == ["code", "linux", "browser", "windows", "mobile"]


def test_a_sandbox_of_a_kind_says_so(server: Server) -> None:
    made = server.text("sandbox", "create", "--kind", "linux", "--image", "host", "-q")
    assert server.text("sandbox", "exec", made, "--", "printenv", "PADDOCK_KIND") == "linux"
    row = next(line for line in server.text("sandbox", "list").splitlines() if line.startswith(made))
    assert row.split()[2:4] == ["linux", "host"]
    assert "kind" in server.text("sandbox", "show", made)
    server.text("sandbox", "rm", made)


def test_an_unknown_kind_is_answered_with_those_there_are(server: Server) -> None:
    done = server.run("sandbox", "create", "--kind", "windws")
    assert done.returncode == 1
    assert b"did you mean windows? known are: code, linux, browser, windows, mobile" in done.stderr


def test_a_pool_is_made_listed_resized_and_removed(server: Server) -> None:
    server.text("pool", "create", "desks", "--kind", "linux", "--image", "host", "--size", "0", "--memory", "256Mi")
    [pool] = server.json("pool", "list")
    assert (pool["name"], pool["kind"], pool["status"]["revision"]) == ("desks", "linux", "host")
    assert server.json("pool", "resize", "desks", "1")["capacitySpec"]["bufferMax"] == 1
    assert "desks" in server.text("pool", "list")
    server.text("pool", "rm", "desks")
    assert server.json("pool", "list") == []
    assert b"--kind KIND or --image IMAGE" in server.run("pool", "create", "none").stderr
