"""Starting boxes, and running commands and keeping files in them."""

from __future__ import annotations

import asyncio
import json
import os

from paddock.errors import BoxGone, NotFound, PaddockError
from paddock.model.sandbox import BoxHealth
from paddock.sandbox.client import Command, Inside
from paddock.sandbox.conformance.bench import Bench, Checks, check, eventually


class Running(Checks):
    """Starting boxes, and running commands and keeping files in them."""

    # Starting

    @check
    async def test_a_started_box_answers(self, bench: Bench) -> None:
        """`start` returns once `inside` answers."""
        box = await bench.start()
        await box.inside.ping(timeout=2)
        assert (await bench.backend.status(box.record)).health is BoxHealth.RUNNING

    @check
    async def test_the_record_is_json_and_enough_to_reach_the_box(self, bench: Bench) -> None:
        """A caller stores the record as JSON; what comes back from the store must serve."""
        box = await bench.start()
        stored = json.loads(json.dumps(dict(box.record)))
        async with Inside(bench.backend.address(stored)) as inside:
            await inside.ping()

    @check
    async def test_a_wrong_token_is_refused(self, bench: Bench) -> None:
        """Nobody talks to a box without its token."""
        box = await bench.start()
        address = bench.backend.address(box.record).model_copy(update={"token": "wrong"})
        async with Inside(address) as inside:
            try:
                await inside.run("true")
            except PaddockError:
                return
        raise AssertionError("a command ran with a wrong token")

    @check
    async def test_programs_see_the_environment_of_image_and_box(self, bench: Bench) -> None:
        """The box's own variables win over the image's; a command's own win over both."""
        image = bench.image.model_copy(update={"env": {**bench.image.env, "ONE": "image", "TWO": "image"}})
        box = await bench.start(image=image, env={"TWO": "box", "THREE": "box ä\nline"})
        shown = await box.python("import os; print([os.environ.get(n) for n in ('ONE', 'TWO', 'THREE')])")
        assert shown == str(["image", "box", "box ä\nline"])
        assert await box.text(Command("echo $TWO", env={"TWO": "command"})) == "command"

    @check
    async def test_nothing_of_the_servers_environment_leaks(self, bench: Bench) -> None:
        """A secret in the server's environment is not in the box's."""
        os.environ["PADDOCK_CONFORMANCE_SECRET"] = "leak"  # noqa: S105
        try:
            box = await bench.start()
        finally:
            del os.environ["PADDOCK_CONFORMANCE_SECRET"]
        assert "PADDOCK_CONFORMANCE_SECRET" not in await box.text("env")

    @check
    async def test_programs_run_as_the_images_user_in_the_workspace(self, bench: Bench) -> None:
        """Uid, gid, home and working directory are what the image and the contract say."""
        box = await bench.start()
        user = bench.image.user
        shown = await box.text('echo "$(id -u) $(id -g) $HOME $(pwd)"')
        assert shown == f"{user.uid} {user.gid} {user.home} /workspace"

    @check
    async def test_home_workspace_and_tmp_can_be_written(self, bench: Bench) -> None:
        """The box's user owns where it works."""
        box = await bench.start()
        places = "$HOME /workspace /tmp /var/tmp /dev/shm"
        await box.text(f"for d in {places}; do echo x > $d/probe && rm $d/probe || exit 1; done")

    @check
    async def test_the_hostname_is_the_one_asked_for(self, bench: Bench) -> None:
        """Programs that ask for the machine's name get the box's."""
        box = await bench.start(hostname="pen-7")
        assert await box.python("import socket; print(socket.gethostname())") == "pen-7"

    @check
    async def test_the_entrypoint_runs(self, bench: Bench) -> None:
        """What the box was started for is started, in the workspace."""
        box = await bench.start(entrypoint=("sh", "-c", "echo $0 > entered; exec sleep 600", "word two"))

        async def written() -> bool:
            return (await box.run("cat /workspace/entered")).stdout == b"word two\n"

        await eventually(written)

    # Commands

    @check
    async def test_a_failing_command_is_a_result(self, bench: Bench) -> None:
        """An exit code is no error of the box."""
        box = await bench.start()
        result = await box.run("echo out; echo err >&2; exit 7")
        assert (result.exit_code, result.stdout, result.stderr) == (7, b"out\n", b"err\n")

    @check
    async def test_a_command_that_does_not_exist_is_a_result(self, bench: Bench) -> None:
        """So is a command that cannot be found."""
        box = await bench.start()
        assert (await box.run("no-such-program-anywhere")).exit_code == 127

    @check
    async def test_a_dead_box_is_an_error(self, bench: Bench) -> None:
        """When the box itself is gone, `BoxGone` says so."""
        box = await bench.start()
        await bench.backend.remove(box.id)
        try:
            await box.run("true")
        except BoxGone:
            return
        raise AssertionError("a command ran in a box that is gone")

    @check
    async def test_output_is_kept_byte_for_byte(self, bench: Bench) -> None:
        """Output is not text: every byte value comes through, in order."""
        box = await bench.start()
        code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300 + b'no newline')"
        result = await box.run(Command(["python3", "-c", code]))
        assert result.stdout == bytes(range(256)) * 300 + b"no newline"

    @check
    async def test_words_are_not_read_by_a_shell(self, bench: Bench) -> None:
        """A list of words reaches the program as it is."""
        box = await bench.start()
        words = ["a b", "$HOME", "*", "", "'\"", "ä"]
        code = "import sys; print(sys.argv[1:])"
        assert await box.text(Command(["python3", "-c", code, *words])) == str(words)

    @check
    async def test_standard_input_and_cwd_reach_the_command(self, bench: Bench) -> None:
        """A command gets the input it was given, where it was asked to run."""
        box = await bench.start()
        assert await box.text(Command("pwd; cat", cwd="/tmp", stdin="in ä")) == "/tmp\nin ä"  # noqa: S108

    @check
    async def test_a_command_past_its_time_is_ended(self, bench: Bench) -> None:
        """A timeout ends the command, and the box goes on."""
        box = await bench.start()
        result = await box.run(Command("sleep 600", timeout=0.2))
        assert result.exit_code != 0
        assert await box.text("echo on") == "on"

    # Files

    @check
    async def test_files_are_written_and_read_exactly(self, bench: Bench) -> None:
        """Any bytes, any name; and what programs write can be read."""
        box = await bench.start()
        content = bytes(range(256)) * 1000
        await box.inside.write_file("/workspace/dir ä/data.bin", content)
        assert await box.inside.read_file("/workspace/dir ä/data.bin") == content
        await box.text("echo made > /workspace/made")
        assert await box.inside.read_file("/workspace/made") == b"made\n"

    @check
    async def test_a_missing_file_is_not_found(self, bench: Bench) -> None:
        """A file that is not there is told apart from a broken box."""
        box = await bench.start()
        try:
            await box.inside.read_file("/workspace/none")
        except NotFound:
            return
        raise AssertionError("a file was read that does not exist")

    @check
    async def test_boxes_of_one_image_do_not_see_each_others_writes(self, bench: Bench) -> None:
        """The image is shared and read-only; what a box writes over it is its own."""
        one, two = await asyncio.gather(bench.start(), bench.start())
        await one.text("for d in /var/tmp /tmp $HOME /workspace; do echo one > $d/mark || exit 1; done")
        seen = "for d in /var/tmp /tmp $HOME /workspace; do test ! -e $d/mark || echo $d; done"
        assert await two.text(seen) == ""
        assert await (await bench.start()).text(seen) == "", "a box wrote into the image"
