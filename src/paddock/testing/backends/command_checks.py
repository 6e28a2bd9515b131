"""Checks of starting sandboxes, running commands and transferring files."""

from __future__ import annotations

import asyncio
import json
import os

from paddock.errors import NotFound, PaddockError, SandboxGone
from paddock.model.sandbox import SandboxHealth
from paddock.sandbox.daemon.client import DaemonClient, SandboxCommand
from paddock.testing.backends.harness import BackendHarness, ConformanceChecks, conformance_check, wait_until_true


class CommandChecks(ConformanceChecks):
    """Checks of starting sandboxes, running commands and transferring files."""

    # Starting

    @conformance_check
    async def test_started_sandbox_answers(self, harness: BackendHarness) -> None:
        """`start` returns once the daemon answers."""
        sandbox = await harness.start()
        await sandbox.inside.ping(timeout=2)
        assert (await harness.backend.status(sandbox.record)).health is SandboxHealth.RUNNING

    @conformance_check
    async def test_record_survives_json_and_reaches_sandbox(self, harness: BackendHarness) -> None:
        """A record survives storage as JSON."""
        sandbox = await harness.start()
        stored = json.loads(json.dumps(dict(sandbox.record)))
        async with DaemonClient(harness.backend.daemon_address(stored)) as inside:
            await inside.ping()

    @conformance_check
    async def test_wrong_token_is_refused(self, harness: BackendHarness) -> None:
        """Requests without the sandbox's token are rejected."""
        sandbox = await harness.start()
        address = harness.backend.daemon_address(sandbox.record).model_copy(update={"token": "wrong"})
        async with DaemonClient(address) as inside:
            try:
                await inside.run("true")
            except PaddockError:
                return
        raise AssertionError("a command ran with a wrong token")

    @conformance_check
    async def test_environment_of_image_and_sandbox_is_visible(self, harness: BackendHarness) -> None:
        """Variables of a sandbox override the image's; variables of a command override both."""
        image = harness.image.model_copy(update={"env": {**harness.image.env, "ONE": "image", "TWO": "image"}})
        sandbox = await harness.start(image=image, env={"TWO": "box", "THREE": "sandbox ä\nline"})
        shown = await sandbox.python("import os; print([os.environ.get(n) for n in ('ONE', 'TWO', 'THREE')])")
        assert shown == str(["image", "box", "sandbox ä\nline"])
        assert await sandbox.text(SandboxCommand("echo $TWO", env={"TWO": "command"})) == "command"

    @conformance_check
    async def test_server_environment_does_not_leak(self, harness: BackendHarness) -> None:
        """The server's environment is not passed to the sandbox."""
        os.environ["PADDOCK_CONFORMANCE_SECRET"] = "leak"  # noqa: S105
        try:
            sandbox = await harness.start()
        finally:
            del os.environ["PADDOCK_CONFORMANCE_SECRET"]
        assert "PADDOCK_CONFORMANCE_SECRET" not in await sandbox.text("env")

    @conformance_check
    async def test_programs_run_as_the_images_user_in_the_workspace(self, harness: BackendHarness) -> None:
        """Uid, gid, home and working directory follow the image and the contract."""
        sandbox = await harness.start()
        user = harness.spec().program_user
        shown = await sandbox.text('echo "$(id -u) $(id -g) $HOME $(pwd)"')
        assert shown == f"{user.uid} {user.gid} {user.home} /workspace"

    @conformance_check
    async def test_home_workspace_and_tmp_can_be_written(self, harness: BackendHarness) -> None:
        """The sandbox user owns the workspace."""
        sandbox = await harness.start()
        directories = "$HOME /workspace /tmp /var/tmp /dev/shm"
        await sandbox.text(f"for d in {directories}; do echo x > $d/probe && rm $d/probe || exit 1; done")

    @conformance_check
    async def test_hostname_is_the_requested_one(self, harness: BackendHarness) -> None:
        """The hostname is the sandbox's."""
        sandbox = await harness.start(hostname="pen-7")
        assert await sandbox.python("import socket; print(socket.gethostname())") == "pen-7"

    @conformance_check
    async def test_entrypoint_runs_in_workspace(self, harness: BackendHarness) -> None:
        """The spec's entrypoint is started in the workspace."""
        sandbox = await harness.start(entrypoint=("sh", "-c", "echo $0 > entered; exec sleep 600", "word two"))

        async def written() -> bool:
            return (await sandbox.run("cat /workspace/entered")).stdout == b"word two\n"

        await wait_until_true(written)

    # Commands

    @conformance_check
    async def test_failing_command_returns_result(self, harness: BackendHarness) -> None:
        """A non-zero exit code is not a sandbox error."""
        sandbox = await harness.start()
        result = await sandbox.run("echo out; echo err >&2; exit 7")
        assert (result.exit_code, result.stdout, result.stderr) == (7, b"out\n", b"err\n")

    @conformance_check
    async def test_missing_command_returns_result(self, harness: BackendHarness) -> None:
        """A missing command is not a sandbox error."""
        sandbox = await harness.start()
        assert (await sandbox.run("no-such-program-anywhere")).exit_code == 127

    @conformance_check
    async def test_command_in_removed_sandbox_raises_error(self, harness: BackendHarness) -> None:
        """Commands in a removed sandbox raise `SandboxGone`."""
        sandbox = await harness.start()
        await harness.backend.remove(sandbox.id)
        try:
            await sandbox.run("true")
        except SandboxGone:
            return
        raise AssertionError("a command ran in a sandbox that is gone")

    @conformance_check
    async def test_output_is_binary_safe(self, harness: BackendHarness) -> None:
        """Output is binary-safe and ordered."""
        sandbox = await harness.start()
        code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300 + b'no newline')"
        result = await sandbox.run(SandboxCommand(["python3", "-c", code]))
        assert result.stdout == bytes(range(256)) * 300 + b"no newline"

    @conformance_check
    async def test_argument_list_is_not_parsed_by_a_shell(self, harness: BackendHarness) -> None:
        """A list of arguments reaches the program unchanged."""
        sandbox = await harness.start()
        words = ["a b", "$HOME", "*", "", "'\"", "ä"]
        code = "import sys; print(sys.argv[1:])"
        assert await sandbox.text(SandboxCommand(["python3", "-c", code, *words])) == str(words)

    @conformance_check
    async def test_standard_input_and_cwd_reach_the_command(self, harness: BackendHarness) -> None:
        """A command gets its standard input and working directory."""
        sandbox = await harness.start()
        assert await sandbox.text(SandboxCommand("pwd; cat", cwd="/tmp", stdin="in ä")) == "/tmp\nin ä"  # noqa: S108

    @conformance_check
    async def test_command_is_ended_at_its_timeout(self, harness: BackendHarness) -> None:
        """A timeout ends the command but not the sandbox."""
        sandbox = await harness.start()
        result = await sandbox.run(SandboxCommand("sleep 600", timeout=0.2))
        assert result.exit_code != 0
        assert await sandbox.text("echo on") == "on"

    # Files

    @conformance_check
    async def test_files_are_written_and_read_exactly(self, harness: BackendHarness) -> None:
        """Files of any name and content can be written and read, also files that programs wrote."""
        sandbox = await harness.start()
        content = bytes(range(256)) * 1000
        await sandbox.inside.write_file("/workspace/dir ä/data.bin", content)
        assert await sandbox.inside.read_file("/workspace/dir ä/data.bin") == content
        await sandbox.text("echo made > /workspace/made")
        assert await sandbox.inside.read_file("/workspace/made") == b"made\n"

    @conformance_check
    async def test_missing_file_raises_not_found(self, harness: BackendHarness) -> None:
        """A missing file is distinguished from a broken sandbox."""
        sandbox = await harness.start()
        try:
            await sandbox.inside.read_file("/workspace/none")
        except NotFound:
            return
        raise AssertionError("a file was read that does not exist")

    @conformance_check
    async def test_image_changes_are_private_to_a_sandbox(self, harness: BackendHarness) -> None:
        """Changes to image files are private to the sandbox."""
        one, two = await asyncio.gather(harness.start(), harness.start())
        await one.text("for d in /var/tmp /tmp $HOME /workspace; do echo one > $d/mark || exit 1; done")
        seen = "for d in /var/tmp /tmp $HOME /workspace; do test ! -e $d/mark || echo $d; done"
        assert await two.text(seen) == ""
        assert await (await harness.start()).text(seen) == "", "a sandbox wrote into the image"
