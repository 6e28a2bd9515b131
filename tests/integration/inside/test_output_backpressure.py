"""A command waits for a lagging follower, so that no output is lost."""

from __future__ import annotations

import json

from .daemon import Daemon, eventually

SIZE = 300 * 2**20
HELD_AT = 128 * 2**20


def kept_on_disk(daemon: Daemon) -> int:
    directory = daemon.socket_path.parent / "state"
    return sum(path.stat().st_size for path in directory.rglob("*.out"))


def test_lagging_follower_loses_no_output(daemon: Daemon) -> None:
    command_id = daemon.start(f"head -c {SIZE} /dev/zero | tr '\\0' x", hold=True)
    eventually(lambda: kept_on_disk(daemon) >= HELD_AT)
    assert daemon.call("GET", f"/command/status/{command_id}").json()["running"]
    received = 0
    with daemon.stream("GET", f"/command/{command_id}/logs?follow=1") as lines:
        for line in lines:
            document = json.loads(line)
            assert document["type"] != "status", document
            if document["type"] == "stdout":
                received += len(document["text"])
    assert received == SIZE


def test_waiting_command_can_be_terminated(daemon: Daemon) -> None:
    command_id = daemon.start("yes", hold=True)
    eventually(lambda: kept_on_disk(daemon) >= HELD_AT)
    assert daemon.call("DELETE", f"/command?id={command_id}").status == 200
    eventually(lambda: not daemon.call("GET", f"/command/status/{command_id}").json()["running"])
