"""The asynchronous SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from io import BytesIO

import httpx
import pytest
from opensandbox import Sandbox, SandboxManager
from opensandbox.adapters.network_policy_adapter import NetworkPolicyAdapter
from opensandbox.config import ConnectionConfig
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.execd import ExecutionHandlers, OutputMessage, RunCommandOpts
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)
from opensandbox.models.sandboxes import (
    PVC,
    Credential,
    CredentialBinding,
    CredentialProxyConfig,
    Host,
    NetworkPolicy,
    NetworkRule,
    SandboxFilter,
    SnapshotFilter,
    Volume,
)

from tests.contract.opensandbox.conftest import IMAGE
from tests.support.server import Server

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sandbox(connection: ConnectionConfig) -> AsyncIterator[Sandbox]:
    made = await Sandbox.create(IMAGE, connection_config=connection, env={"COLOUR": "blue"}, metadata={"by": "sdk"})
    try:
        yield made
    finally:
        await made.destroy()


@pytest.fixture
async def manager(server: Server) -> AsyncIterator[SandboxManager]:
    config = ConnectionConfig(domain=server.domain, api_key=server.key)
    async with await SandboxManager.create(connection_config=config) as made:
        yield made


async def test_commands_return_output_and_exit_code(sandbox: Sandbox) -> None:
    assert await sandbox.is_healthy()
    received: list[str] = []

    async def on_message(message: OutputMessage) -> None:
        received.append(message.text)

    done = await sandbox.commands.run(
        "echo $COLOUR; echo oops >&2; exit 3", handlers=ExecutionHandlers(on_stdout=on_message, on_stderr=on_message)
    )
    assert [message.text for message in done.logs.stdout] == ["blue"]
    assert [message.text for message in done.logs.stderr] == ["oops"]
    assert done.exit_code == 3
    assert sorted(received) == ["blue", "oops"]
    with_options = await sandbox.commands.run(
        "pwd; echo $SHADE", opts=RunCommandOpts(working_directory="/tmp", envs={"SHADE": "dark"})
    )
    assert [message.text for message in with_options.logs.stdout] == ["/tmp", "dark"]
    late = await sandbox.commands.run("sleep 30", opts=RunCommandOpts(timeout=timedelta(milliseconds=300)))
    assert late.exit_code != 0


async def test_output_is_streamed_while_command_runs(sandbox: Sandbox) -> None:
    first = asyncio.Event()

    async def on_message(message: OutputMessage) -> None:
        if message.text == "first":
            first.set()

    running = asyncio.create_task(
        sandbox.commands.run(
            "echo first; until [ -e /tmp/go ]; do sleep 0.02; done; echo last",
            handlers=ExecutionHandlers(on_stdout=on_message),
        )
    )
    await asyncio.wait_for(first.wait(), 20)
    await sandbox.files.write_file("/tmp/go", "")
    done = await asyncio.wait_for(running, 20)
    assert [message.text for message in done.logs.stdout] == ["first", "last"]


async def test_background_commands_are_followed_by_cursor_and_interrupted(sandbox: Sandbox) -> None:
    started = await sandbox.commands.run("echo one; echo two", opts=RunCommandOpts(background=True))
    assert started.id
    while (status := await sandbox.commands.get_command_status(started.id)).running:
        await asyncio.sleep(0.01)
    assert status.exit_code == 0
    logs = await sandbox.commands.get_background_command_logs(started.id)
    assert logs.content == "one\ntwo\n"
    assert (await sandbox.commands.get_background_command_logs(started.id, cursor=logs.cursor)).content == ""
    endless = await sandbox.commands.run("sleep 600", opts=RunCommandOpts(background=True))
    assert endless.id
    await sandbox.commands.interrupt(endless.id)
    while (status := await sandbox.commands.get_command_status(endless.id)).running:
        await asyncio.sleep(0.01)
    assert status.exit_code != 0


async def test_command_sessions_keep_their_state(sandbox: Sandbox) -> None:
    session = await sandbox.commands.create_session(working_directory="/tmp")
    await sandbox.commands.run_in_session(session, "export N=41; cd /usr")
    done = await sandbox.commands.run_in_session(session, "echo $((N + 1)) $PWD")
    assert [message.text for message in done.logs.stdout] == ["42 /usr"]
    await sandbox.commands.delete_session(session)


async def test_files(sandbox: Sandbox) -> None:
    files = sandbox.files
    await files.create_directories([WriteEntry(path="/tmp/d/e", mode=755)])
    await files.write_files(
        [
            WriteEntry(path="/tmp/d/a.txt", data="colour: red\n", mode=640),
            WriteEntry(path="/tmp/d/e/b.bin", data=bytes(range(256)) * 1000),
            WriteEntry(path="/tmp/d/e/c.txt", data=BytesIO(b"streamed")),
        ]
    )
    assert await files.read_file("/tmp/d/a.txt") == "colour: red\n"
    assert await files.read_bytes("/tmp/d/e/b.bin") == bytes(range(256)) * 1000
    assert await files.read_bytes("/tmp/d/e/b.bin", range_header="bytes=256-259") == b"\x00\x01\x02\x03"
    assert b"".join([piece async for piece in await files.read_bytes_stream("/tmp/d/e/c.txt")]) == b"streamed"
    info = (await files.get_file_info(["/tmp/d/a.txt"]))["/tmp/d/a.txt"]
    assert (info.size, info.mode) == (12, 640)
    await files.set_permissions([SetPermissionEntry(path="/tmp/d/a.txt", mode=600)])
    assert (await files.get_file_info(["/tmp/d/a.txt"]))["/tmp/d/a.txt"].mode == 600
    await files.replace_contents([ContentReplaceEntry(path="/tmp/d/a.txt", old_content="red", new_content="blue")])
    assert await files.read_file("/tmp/d/a.txt") == "colour: blue\n"
    replacements = await files.replace_contents_detailed(
        [ContentReplaceEntry(path="/tmp/d/a.txt", old_content="green", new_content="x")]
    )
    assert [result.replaced_count for result in replacements] == [0]
    found = await files.search(SearchEntry(path="/tmp/d", pattern="**/*.txt"))
    assert sorted(entry.path for entry in found) == ["/tmp/d/a.txt", "/tmp/d/e/c.txt"]
    listed = await files.list_directory(DirectoryListEntry(path="/tmp/d"))
    assert sorted(entry.path for entry in listed) == ["/tmp/d/a.txt", "/tmp/d/e"]
    await files.move_files([MoveEntry(src="/tmp/d/a.txt", dest="/tmp/d/z.txt")])
    await files.delete_files(["/tmp/d/z.txt"])
    with pytest.raises(SandboxException):
        await files.read_file("/tmp/d/z.txt")
    await files.delete_directories(["/tmp/d"])
    with pytest.raises(SandboxException):
        await files.list_directory(DirectoryListEntry(path="/tmp/d"))


async def test_metrics_info_and_endpoints(sandbox: Sandbox, connection: ConnectionConfig) -> None:
    metrics = await sandbox.get_metrics()
    assert metrics.cpu_count > 0 and metrics.memory_total_in_mib > 0
    info = await sandbox.get_info()
    assert info.status.state == "Running"
    assert info.metadata == {"by": "sdk"} and info.image is not None and info.image.image == IMAGE
    await sandbox.files.write_file("/tmp/page", "hello from the sandbox")
    await sandbox.commands.run(
        "cd /tmp && exec python3 -m http.server 8000 --bind 127.0.0.1", opts=RunCommandOpts(background=True)
    )
    await sandbox.commands.run(
        "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))'; do sleep 0.05; done"
    )
    endpoint = await sandbox.get_endpoint(8000)
    headers = endpoint.build_request_headers(connection)
    async with httpx.AsyncClient(trust_env=False) as client:
        page = await client.get(f"http://{endpoint.endpoint}/page", headers=headers)
    assert page.text == "hello from the sandbox"


async def test_pause_resume_renew_and_metadata(connection: ConnectionConfig, manager: SandboxManager) -> None:
    sandbox = await Sandbox.create(IMAGE, connection_config=connection, timeout=timedelta(minutes=5))
    await sandbox.commands.run("sleep 1000", opts=RunCommandOpts(background=True))
    await sandbox.pause()
    assert (await manager.get_sandbox_info(sandbox.id)).status.state == "Paused"
    with pytest.raises(SandboxApiException):
        await manager.pause_sandbox(sandbox.id)
    resumed = await Sandbox.resume(sandbox.id, connection_config=connection)
    assert (await resumed.commands.run("echo back")).logs.stdout[0].text == "back"
    renewed = await resumed.renew(timedelta(minutes=20))
    assert renewed.expires_at > datetime.now(UTC) + timedelta(minutes=19)
    patched = await resumed.patch_metadata({"team": "search", "by": None})
    assert patched.metadata == {"team": "search"}
    connected = await Sandbox.connect(sandbox.id, connection_config=connection)
    assert await connected.is_healthy()
    for one in (connected, resumed):
        await one.close()
    await sandbox.destroy()
    with pytest.raises(SandboxApiException):
        await manager.get_sandbox_info(sandbox.id)


async def test_sandbox_without_timeout_does_not_expire(manager: SandboxManager, connection: ConnectionConfig) -> None:
    async with await Sandbox.create(IMAGE, connection_config=connection, timeout=None) as sandbox:
        assert (await sandbox.get_info()).expires_at is None
        await sandbox.kill()


async def test_snapshots_are_restored(sandbox: Sandbox, manager: SandboxManager, connection: ConnectionConfig) -> None:
    await sandbox.commands.run("echo kept > ~/file; echo also > /etc/also 2>/dev/null; echo t > /var/tmp/t")
    snapshot = await sandbox.create_snapshot("before")
    while (known := await manager.get_snapshot(snapshot.id)).status.state == "Creating":
        await asyncio.sleep(0.02)
    assert known.status.state == "Ready" and known.name == "before"
    listed = await manager.list_snapshots(SnapshotFilter(sandbox_id=sandbox.id))
    assert [item.id for item in listed.snapshot_infos] == [snapshot.id]
    restored = await Sandbox.create(snapshot_id=snapshot.id, connection_config=connection)
    try:
        assert (await restored.commands.run("cat ~/file")).logs.stdout[0].text == "kept"
        assert (await restored.get_info()).snapshot_id == snapshot.id
    finally:
        await restored.destroy()
    await manager.delete_snapshot(snapshot.id)
    with pytest.raises(SandboxApiException):
        await manager.get_snapshot(snapshot.id)


async def test_lists_are_filtered_by_state_and_metadata(manager: SandboxManager, connection: ConnectionConfig) -> None:
    made = await Sandbox.create(IMAGE, connection_config=connection, metadata={"app": "filter", "example.com/x": "1"})
    try:
        found = await manager.list_sandbox_infos(SandboxFilter(metadata={"app": "filter", "example.com/x": "1"}))
        assert [info.id for info in found.sandbox_infos] == [made.id]
        none = await manager.list_sandbox_infos(SandboxFilter(states=["Paused"], metadata={"app": "filter"}))
        assert none.sandbox_infos == []
        paged = await manager.list_sandbox_infos(SandboxFilter(states=["Running"], page=1, page_size=1))
        assert len(paged.sandbox_infos) == 1
    finally:
        await made.destroy()


async def test_egress_rules_are_changed_at_run_time(sandbox: Sandbox) -> None:
    policy = await sandbox.get_egress_policy()
    assert policy.default_action == "deny" and policy.egress in (None, [])
    await sandbox.patch_egress_rules([NetworkRule(action="allow", target="*.example.com")])
    await sandbox.patch_egress_rules(
        [
            NetworkRule(action="deny", target="bad.example.com"),
            NetworkRule(action="allow", target="Bad.Example.com"),
            NetworkRule(action="allow", target="pypi.org"),
        ]
    )
    assert await egress_rules(sandbox) == ["deny bad.example.com", "allow pypi.org", "allow *.example.com"]
    await sandbox.patch_egress_rules([NetworkRule(action="deny", target="*.example.com")])
    assert await egress_rules(sandbox) == ["deny *.example.com", "deny bad.example.com", "allow pypi.org"]
    await sandbox.delete_egress_rules(["*.example.com", "unknown.example.org", "PYPI.org"])
    assert await egress_rules(sandbox) == ["deny bad.example.com"]
    assert (await sandbox.get_egress_policy()).default_action == "deny"
    with pytest.raises(SandboxException):
        await sandbox.patch_egress_rules([NetworkRule(action="allow", target="not a host")])


async def egress_rules(sandbox: Sandbox) -> list[str]:
    return [f"{rule.action} {rule.target}" for rule in (await sandbox.get_egress_policy()).egress or []]


async def test_network_policy_of_a_new_sandbox(connection: ConnectionConfig) -> None:
    rules = [NetworkRule(action="deny", target="*.bad.example"), NetworkRule(action="allow", target="ok.example:443")]
    sandbox = await Sandbox.create(
        IMAGE, connection_config=connection, network_policy=NetworkPolicy(defaultAction="allow", egress=rules)
    )
    try:
        policy = await sandbox.get_egress_policy()
        assert policy.default_action == "allow" and policy.egress == rules
        await sandbox.delete_egress_rules(["ok.example:443", "open"])
        policy = await sandbox.get_egress_policy()
        assert policy.default_action == "allow" and policy.egress == rules[:1]
    finally:
        await sandbox.destroy()


async def test_network_policy_through_the_lifecycle_api(sandbox: Sandbox, connection: ConnectionConfig) -> None:
    adapter = NetworkPolicyAdapter(connection, sandbox.id)
    await adapter.patch_rules([NetworkRule(action="allow", target="example.com")])
    assert await egress_rules(sandbox) == ["allow example.com"]
    await adapter.delete_rules(["example.com"])
    assert (await adapter.get_policy()).egress in (None, [])
    await adapter._httpx_client.aclose()  # The SDK leaves it open.


async def test_invalid_network_policies_are_refused(connection: ConnectionConfig) -> None:
    with pytest.raises(SandboxApiException, match="is not a host name, an address or a network"):
        await Sandbox.create(
            IMAGE,
            connection_config=connection,
            network_policy=NetworkPolicy(egress=[NetworkRule(action="allow", target="exa*mple.com")]),
        )


async def test_credential_vault(connection: ConnectionConfig, sandbox: Sandbox) -> None:
    with pytest.raises(SandboxException, match="412"):
        await sandbox.credential_vault.get()
    made = await Sandbox.create(
        IMAGE,
        connection_config=connection,
        network_policy=NetworkPolicy(egress=[NetworkRule(action="allow", target="api.example.com")]),
        credential_proxy=CredentialProxyConfig(enabled=True),
    )
    try:
        vault = made.credential_vault
        binding = CredentialBinding(
            name="api-v1",
            match={"hosts": ["api.example.com"], "schemes": ["https"], "ports": [443], "paths": ["/v1/*"]},
            auth={"type": "apiKey", "name": "X-Key", "credential": "token"},
        )
        token = Credential(name="token", source={"value": "a-secret-value"})
        created = await vault.create(credentials=[token], bindings=[binding])
        assert created.revision == 1 and "a-secret-value" not in created.model_dump_json()
        with pytest.raises(SandboxException, match="409"):
            await vault.create(credentials=[token], bindings=[binding])
        with pytest.raises(SandboxException, match="409"):
            await vault.patch(expected_revision=9, credentials={"replace": [token]})
        changed = await vault.patch(
            expected_revision=1,
            credentials={"replace": [token], "add": [{"name": "user", "source": {"value": "dXNlcjpwYXNzd29yZA=="}}]},
            bindings={
                "add": [
                    {
                        "name": "basic",
                        "match": {"hosts": ["*.example.com"], "methods": ["POST"]},
                        "auth": {"type": "basic", "credential": "user"},
                    }
                ]
            },
        )
        assert changed.revision == 2 == (await vault.get()).revision
        assert [each.name for each in await vault.list_credentials()] == ["token", "user"]
        assert (await vault.get_credential("user")).source_type == "inline"
        assert [each.name for each in await vault.list_bindings()] == ["api-v1", "basic"]
        found = await vault.get_binding("api-v1")
        assert found.match and found.match.hosts == ["api.example.com"] and found.auth and found.auth.type == "apiKey"
        with pytest.raises(SandboxException, match="404"):
            await vault.get_credential("none")
        await vault.delete()
        with pytest.raises(SandboxException, match="404"):
            await vault.get()
    finally:
        await made.destroy()


async def test_diagnostics(connection: ConnectionConfig) -> None:
    sandbox = await Sandbox.create(
        IMAGE, connection_config=connection, entrypoint=["sh", "-c", "echo from the entrypoint; sleep 1000"]
    )
    try:
        while "from the entrypoint" not in ((logs := await sandbox.get_diagnostic_logs("container")).content or ""):
            await asyncio.sleep(0.02)
        assert logs.truncated is False
        events = await sandbox.get_diagnostic_events("lifecycle")
        assert events.content is not None and "sandbox.running" in events.content
        with pytest.raises(SandboxException):
            await sandbox.get_diagnostic_logs("nonsense")
    finally:
        await sandbox.destroy()


async def test_volumes(server: Server, connection: ConnectionConfig, tmp_path_factory: pytest.TempPathFactory) -> None:
    shared = server.settings["sandboxes"]["allowed_host_paths"][0]
    volumes = [
        Volume(name="in", host=Host(path=shared), mount_path="/mnt/in", read_only=True),
        Volume(name="out", pvc=PVC(claim_name="results"), mount_path="/mnt/out"),
    ]
    first = await Sandbox.create(IMAGE, connection_config=connection, volumes=volumes)
    try:
        done = await first.commands.run("cat /mnt/in/hello && cp /mnt/in/hello /mnt/out/ && ! touch /mnt/in/x")
        assert done.exit_code == 0, done.logs
    finally:
        await first.destroy()
    second = await Sandbox.create(IMAGE, connection_config=connection, volumes=volumes[1:])
    try:
        assert (await second.commands.run("cat /mnt/out/hello")).logs.stdout[0].text == "from the host"
    finally:
        await second.destroy()
    outside = Volume(name="etc", host=Host(path="/etc"), mount_path="/mnt/etc")
    with pytest.raises(SandboxApiException, match="may not be mounted"):
        await Sandbox.create(IMAGE, connection_config=connection, volumes=[outside])


async def test_errors_are_readable(connection: ConnectionConfig, server: Server) -> None:
    with pytest.raises(SandboxApiException, match="no recipe named 'nonsense'"):
        await Sandbox.create("nonsense", connection_config=connection)
    with pytest.raises(SandboxApiException, match="not a size"):
        await Sandbox.create(IMAGE, connection_config=connection, resource={"memory": "lots"})
    wrong = ConnectionConfig(domain=server.domain, api_key="pdk_wrong")
    with pytest.raises(SandboxApiException, match="not an API key"):
        await Sandbox.create(IMAGE, connection_config=wrong)


async def test_sandboxes_from_a_pool(server: Server, connection: ConnectionConfig) -> None:
    """The SDK has no calls for the server's pools, so one is made by hand."""
    pool = {"name": "sdk", "template": {"spec": {"containers": [{"image": IMAGE}]}}, "capacitySpec": {"bufferMax": 1}}
    async with httpx.AsyncClient(base_url=server.url, headers={"OPEN-SANDBOX-API-KEY": server.key}) as client:
        assert (await client.post("/v1/pools", json=pool)).status_code == 201
        while (await client.get("/v1/pools/sdk")).json()["status"]["available"] < 1:
            await asyncio.sleep(0.02)
        sandbox = await Sandbox.create(
            IMAGE, connection_config=connection, env={"WHOSE": "mine"}, extensions={"poolRef": "sdk"}
        )
        try:
            assert (await sandbox.commands.run("echo $WHOSE")).logs.stdout[0].text == "mine"
        finally:
            await sandbox.destroy()
            assert (await client.delete("/v1/pools/sdk")).status_code == 204
