"""The synchronous SDK."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from opensandbox import SandboxManagerSync, SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.filesystem import SearchEntry, WriteEntry
from opensandbox.models.sandboxes import SandboxFilter

from tests.contract.opensandbox.conftest import IMAGE
from tests.support.server import Server, eventually


@pytest.fixture(params=["direct", "proxied"])
def config(request: pytest.FixtureRequest, server: Server) -> ConnectionConfigSync:
    return ConnectionConfigSync(domain=server.domain, api_key=server.key, use_server_proxy=request.param == "proxied")


@pytest.fixture
def sandbox(config: ConnectionConfigSync) -> Iterator[SandboxSync]:
    made = SandboxSync.create(IMAGE, connection_config=config, metadata={"by": "sync"})
    try:
        yield made
    finally:
        made.destroy()


def test_commands_sessions_and_files(sandbox: SandboxSync) -> None:
    done = sandbox.commands.run("echo out; echo err >&2; exit 7")
    assert (done.logs.stdout[0].text, done.logs.stderr[0].text, done.exit_code) == ("out", "err", 7)
    started = sandbox.commands.run("echo later", opts=RunCommandOpts(background=True))
    command = str(started.id)
    eventually(lambda: not sandbox.commands.get_command_status(command).running)
    assert sandbox.commands.get_background_command_logs(command).content == "later\n"
    session = sandbox.commands.create_session()
    sandbox.commands.run_in_session(session, "X=5")
    assert sandbox.commands.run_in_session(session, "echo $X").logs.stdout[0].text == "5"
    sandbox.commands.delete_session(session)
    sandbox.files.write_files([WriteEntry(path="/tmp/x/y.txt", data="text")])
    assert sandbox.files.read_file("/tmp/x/y.txt") == "text"
    assert [entry.path for entry in sandbox.files.search(SearchEntry(path="/tmp/x", pattern="*.txt"))] == [
        "/tmp/x/y.txt"
    ]
    assert b"".join(sandbox.files.read_bytes_stream("/tmp/x/y.txt")) == b"text"
    sandbox.files.delete_directories(["/tmp/x"])


def test_life_cycle(config: ConnectionConfigSync, sandbox: SandboxSync) -> None:
    with SandboxManagerSync.create(connection_config=config) as manager:
        found = manager.list_sandbox_infos(SandboxFilter(metadata={"by": "sync"}))
        assert sandbox.id in [info.id for info in found.sandbox_infos]
        sandbox.pause()
        assert manager.get_sandbox_info(sandbox.id).status.state == "Paused"
        manager.resume_sandbox(sandbox.id)
        assert sandbox.is_healthy()
        sandbox.renew(timedelta(minutes=30))
        snapshot = sandbox.create_snapshot()
        eventually(lambda: manager.get_snapshot(snapshot.id).status.state == "Ready")
        manager.delete_snapshot(snapshot.id)
        with pytest.raises(SandboxApiException):
            manager.get_snapshot(snapshot.id)


def test_metrics_policy_and_diagnostics(sandbox: SandboxSync) -> None:
    assert sandbox.get_metrics().memory_total_in_mib > 0
    assert sandbox.get_egress_policy().default_action == "deny"
    assert "sandbox.running" in (sandbox.get_diagnostic_events("all").content or "")


def test_commands_run_as_other_users_in_root_mode(config: ConnectionConfigSync) -> None:
    sandbox = SandboxSync.create(IMAGE, connection_config=config, extensions={"paddock.user": "root"})
    try:
        for options, shown in (
            (RunCommandOpts(), "0:0"),
            (RunCommandOpts(uid=1000), "1000:1000"),
            (RunCommandOpts(uid=33, gid=44), "33:44"),
        ):
            done = sandbox.commands.run("echo $(id -u):$(id -g)", opts=options)
            assert [message.text for message in done.logs.stdout] == [shown]
    finally:
        sandbox.destroy()


def test_other_users_are_refused_in_ordinary_mode(sandbox: SandboxSync) -> None:
    with pytest.raises(SandboxApiException, match="user: root"):
        sandbox.commands.run("id", opts=RunCommandOpts(uid=33))
