"""Services that start before the daemon: managed like other services, without access to the daemon's resources."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.contract.backends.support import LocalBackendHarness, RunningSandbox, eventually

from paddock.model.sandbox import Image, ImageService
from paddock.sandbox.daemon.client import DaemonClient

SIGN = "/tmp/ready"
COMMAND = f"echo begun; [ -p /tmp/gate ] || mkfifo /tmp/gate; cat /tmp/gate; touch {SIGN}; exec sleep 300"


def with_services(image: Image, command: str | tuple[str, ...] = COMMAND) -> Image:
    first = ImageService(name="first", command=command, ready=SIGN)
    second = ImageService(name="second", command=("sleep", "300"), after=("first",))
    return image.model_copy(update={"services": (first, second)})


def services(running_sandbox: RunningSandbox) -> dict[str, dict[str, Any]]:
    async def ask() -> list[dict[str, Any]]:
        async with DaemonClient(running_sandbox.backend.daemon_address(running_sandbox.record)) as inside:
            return await inside.services()

    return {service["name"]: service for service in asyncio.run(ask())}


def become(running_sandbox: RunningSandbox, **wanted: str) -> None:
    eventually(lambda: all(services(running_sandbox)[name]["state"] == state for name, state in wanted.items()))


def open_gate(running_sandbox: RunningSandbox) -> None:
    eventually(lambda: running_sandbox.run("test -p /tmp/gate").exit_code == 0)
    running_sandbox.output("echo go >/tmp/gate")


def test_early_service_is_first_child_and_restarts_after_death(harness: LocalBackendHarness, image: Image) -> None:
    with harness.sandbox(image=with_services(image)) as running_sandbox:
        become(running_sandbox, first="starting", second="waiting")
        open_gate(running_sandbox)
        become(running_sandbox, first="ready", second="ready")
        first = services(running_sandbox)["first"]
        # Nothing of the daemon, not even a thread, was there before it.
        assert (first["pid"], first["starts"]) == (2, 1)
        second = services(running_sandbox)["second"]["pid"]
        running_sandbox.output("kill -9 2")
        eventually(lambda: services(running_sandbox)["first"]["starts"] == 2)
        become(running_sandbox, first="starting")
        open_gate(running_sandbox)
        become(running_sandbox, first="ready")
        assert services(running_sandbox)["first"]["exit_code"] == 137
        assert services(running_sandbox)["first"]["log"].count("begun") == 2
        assert services(running_sandbox)["second"]["pid"] == second


def test_early_service_has_no_daemon_resources(harness: LocalBackendHarness, image: Image) -> None:
    with harness.sandbox(image=with_services(image)) as running_sandbox:
        open_gate(running_sandbox)
        become(running_sandbox, first="ready")
        shown = running_sandbox.output("for each in /proc/2/fd/*; do echo ${each##*/} $(readlink $each); done").split(
            "\n"
        )
        assert [line.split(":")[0] for line in shown if line] == ["0 /dev/null", "1 pipe", "2 pipe"]
        assert (
            str(running_sandbox.record["token"]).encode()
            not in running_sandbox.run("cat /proc/2/environ /proc/*/cmdline").stdout
        )
        group, session = running_sandbox.output("cut -d ' ' -f 5,6 /proc/2/stat").split()
        assert (group, session) == ("2", "2")


def test_stale_ready_file_does_not_make_service_ready(harness: LocalBackendHarness, image: Image) -> None:
    with harness.sandbox(image=with_services(image)) as running_sandbox:
        open_gate(running_sandbox)
        become(running_sandbox, first="ready")
        harness.do(running_sandbox.backend.snapshot(running_sandbox.record, "kept"))
    with harness.sandbox(image=with_services(image), snapshot="kept") as running_sandbox:
        become(running_sandbox, first="starting", second="waiting")
        assert running_sandbox.run(["test", "-e", SIGN]).exit_code != 0
        open_gate(running_sandbox)
        become(running_sandbox, first="ready", second="ready")
    harness.do(harness.backend.delete_snapshot("kept"))


@pytest.mark.parametrize("command", [("no-such-program",), "exec no-such-program"])
def test_failing_early_service_does_not_block_sandbox_start(
    harness: LocalBackendHarness, image: Image, command: str | tuple[str, ...]
) -> None:
    with harness.sandbox(image=with_services(image, command)) as running_sandbox:
        eventually(lambda: services(running_sandbox)["first"]["starts"] >= 2)
        assert services(running_sandbox)["first"]["exit_code"] == 127
        assert any("no-such-program" in line for line in services(running_sandbox)["first"]["log"])
        assert running_sandbox.answers()


def test_early_service_arguments_are_unchanged(harness: LocalBackendHarness, image: Image) -> None:
    words = ("sh", "-c", 'printf "%s|" "$@"; exec sleep 300', "sh", "two words", "$HOME", "`id`", "", "';x")
    with harness.sandbox(image=with_services(image, words)) as running_sandbox:
        eventually(lambda: services(running_sandbox)["first"]["log"] == ["two words|$HOME|`id`||';x|"])
