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
    async def test_a_started_sandbox_answers(self, bench: BackendHarness) -> None:
        """`start` returns once the daemon answers."""
        sandbox = await bench.start()
        await sandbox.inside.ping(timeout=2)
        assert (await bench.backend.status(sandbox.record)).health is SandboxHealth.RUNNING

    @conformance_check
    async def test_the_record_is_json_and_enough_to_reach_the_sandbox(self, bench: BackendHarness) -> None:
        """A record survives storage as JSON."""
        sandbox = await bench.start()
        stored = json.loads(json.dumps(dict(sandbox.record)))
        async with DaemonClient(bench.backend.daemon_address(stored)) as inside:
            await inside.ping()

    @conformance_check
    async def test_a_wrong_token_is_refused(self, bench: BackendHarness) -> None:
        """Requests without the sandbox's token are rejected."""
        sandbox = await bench.start()
        address = bench.backend.daemon_address(sandbox.record).model_copy(update={"token": "wrong"})
        async with DaemonClient(address) as inside:
            try:
                await inside.run("true")
            except PaddockError:
                return
        raise AssertionError("a command ran with a wrong token")

    @conformance_check
    async def test_programs_see_the_environment_of_image_and_sandbox(self, bench: BackendHarness) -> None:
        """Variables of a sandbox override the image's; those of a command override both."""
        image = bench.image.model_copy(update={"env": {**bench.image.env, "ONE": "image", "TWO": "image"}})
        sandbox = await bench.start(image=image, env={"TWO": "box", "THREE": "sandbox ä\nline"})
        shown = await sandbox.python("import os; print([os.environ.get(n) for n in ('ONE', 'TWO', 'THREE')])")
        assert shown == str(["image", "box", "sandbox ä\nline"])
        assert await sandbox.text(SandboxCommand("echo $TWO", env={"TWO": "command"})) == "command"

    @conformance_check
    async def test_nothing_of_the_servers_environment_leaks(self, bench: BackendHarness) -> None:
        """The server's environment is not passed to the sandbox."""
        os.environ["PADDOCK_CONFORMANCE_SECRET"] = "leak"  # noqa: S105
        try:
            sandbox = await bench.start()
        finally:
            del os.environ["PADDOCK_CONFORMANCE_SECRET"]
        assert "PADDOCK_CONFORMANCE_SECRET" not in await sandbox.text("env")

    @conformance_check
    async def test_programs_run_as_the_images_user_in_the_workspace(self, bench: BackendHarness) -> None:
        """Uid, gid, home and working directory follow the image and the contract."""
        sandbox = await bench.start()
        user = bench.image.user
        shown = await sandbox.text('echo "$(id -u) $(id -g) $HOME $(pwd)"')
        assert shown == f"{user.uid} {user.gid} {user.home} /workspace"

    @conformance_check
    async def test_home_workspace_and_tmp_can_be_written(self, bench: BackendHarness) -> None:
        """The sandbox user owns the workspace."""
        sandbox = await bench.start()
        directories = "$HOME /workspace /tmp /var/tmp /dev/shm"
        await sandbox.text(f"for d in {directories}; do echo x > $d/probe && rm $d/probe || exit 1; done")

    @conformance_check
    async def test_the_hostname_is_the_one_asked_for(self, bench: BackendHarness) -> None:
        """The hostname is the sandbox's."""
        sandbox = await bench.start(hostname="pen-7")
        assert await sandbox.python("import socket; print(socket.gethostname())") == "pen-7"

    @conformance_check
    async def test_the_entrypoint_runs(self, bench: BackendHarness) -> None:
        """The spec's entrypoint is started in the workspace."""
        sandbox = await bench.start(entrypoint=("sh", "-c", "echo $0 > entered; exec sleep 600", "word two"))

        async def written() -> bool:
            return (await sandbox.run("cat /workspace/entered")).stdout == b"word two\n"

        await wait_until_true(written)

    # Commands

    @conformance_check
    async def test_a_failing_command_is_a_result(self, bench: BackendHarness) -> None:
        """A non-zero exit code is not a sandbox error."""
        sandbox = await bench.start()
        result = await sandbox.run("echo out; echo err >&2; exit 7")
        assert (result.exit_code, result.stdout, result.stderr) == (7, b"out\n", b"err\n")

    @conformance_check
    async def test_a_command_that_does_not_exist_is_a_result(self, bench: BackendHarness) -> None:
        """A missing command is not a sandbox error."""
        sandbox = await bench.start()
        assert (await sandbox.run("no-such-program-anywhere")).exit_code == 127

    @conformance_check
    async def test_a_dead_sandbox_is_an_error(self, bench: BackendHarness) -> None:
        """Commands in a removed sandbox raise `SandboxGone`."""
        sandbox = await bench.start()
        await bench.backend.remove(sandbox.id)
        try:
            await sandbox.run("true")
        except SandboxGone:
            return
        raise AssertionError("a command ran in a sandbox that is gone")

    @conformance_check
    async def test_output_is_kept_byte_for_byte(self, bench: BackendHarness) -> None:
        """Output is binary-safe and ordered."""
        sandbox = await bench.start()
        code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300 + b'no newline')"
        result = await sandbox.run(SandboxCommand(["python3", "-c", code]))
        assert result.stdout == bytes(range(256)) * 300 + b"no newline"

    @conformance_check
    async def test_words_are_not_read_by_a_shell(self, bench: BackendHarness) -> None:
        """A list of arguments reaches the program unchanged."""
        sandbox = await bench.start()
        words = ["a b", "$HOME", "*", "", "'\"", "ä"]
        code = "import sys; print(sys.argv[1:])"
        assert await sandbox.text(SandboxCommand(["python3", "-c", code, *words])) == str(words)

    @conformance_check
    async def test_standard_input_and_cwd_reach_the_command(self, bench: BackendHarness) -> None:
        """A command gets its standard input and working directory."""
        sandbox = await bench.start()
        assert await sandbox.text(SandboxCommand("pwd; cat", cwd="/tmp", stdin="in ä")) == "/tmp\nin ä"  # noqa: S108

    @conformance_check
    async def test_a_command_past_its_time_is_ended(self, bench: BackendHarness) -> None:
        """A timeout ends the command but not the sandbox."""
        sandbox = await bench.start()
        result = await sandbox.run(SandboxCommand("sleep 600", timeout=0.2))
        assert result.exit_code != 0
        assert await sandbox.text("echo on") == "on"

    # Files

    @conformance_check
    async def test_files_are_written_and_read_exactly(self, bench: BackendHarness) -> None:
        """Files of any name and content can be written and read, also those written by programs."""
        sandbox = await bench.start()
        content = bytes(range(256)) * 1000
        await sandbox.inside.write_file("/workspace/dir ä/data.bin", content)
        assert await sandbox.inside.read_file("/workspace/dir ä/data.bin") == content
        await sandbox.text("echo made > /workspace/made")
        assert await sandbox.inside.read_file("/workspace/made") == b"made\n"

    @conformance_check
    async def test_a_missing_file_is_not_found(self, bench: BackendHarness) -> None:
        """A missing file is distinguished from a broken sandbox."""
        sandbox = await bench.start()
        try:
            await sandbox.inside.read_file("/workspace/none")
        except NotFound:
            return
        raise AssertionError("a file was read that does not exist")

    @conformance_check
    async def test_sandboxes_of_one_image_do_not_see_each_others_writes(self, bench: BackendHarness) -> None:
        """Changes to image files are private to the sandbox."""
        one, two = await asyncio.gather(bench.start(), bench.start())
        await one.text("for d in /var/tmp /tmp $HOME /workspace; do echo one > $d/mark || exit 1; done")
        seen = "for d in /var/tmp /tmp $HOME /workspace; do test ! -e $d/mark || echo $d; done"
        assert await two.text(seen) == ""
        assert await (await bench.start()).text(seen) == "", "a sandbox wrote into the image"
