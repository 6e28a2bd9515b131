"""The service that starts beside a box's daemon: it is the daemon's like any other, and has nothing of the daemon's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.contract.backends.support import Pen, Yard, eventually

from paddock.model.sandbox import Image, Service
from paddock.sandbox.client import Inside

SIGN = "/tmp/ready"
COMMAND = f"echo begun; [ -p /tmp/gate ] || mkfifo /tmp/gate; cat /tmp/gate; touch {SIGN}; exec sleep 300"


def with_services(image: Image, command: str | tuple[str, ...] = COMMAND) -> Image:
    first = Service(name="first", command=command, ready=SIGN)
    second = Service(name="second", command=("sleep", "300"), after=("first",))
    return image.model_copy(update={"services": (first, second)})


def services(pen: Pen) -> dict[str, dict[str, Any]]:
    async def ask() -> list[dict[str, Any]]:
        async with Inside(pen.backend.address(pen.record)) as inside:
            return await inside.services()

    return {service["name"]: service for service in asyncio.run(ask())}


def become(pen: Pen, **wanted: str) -> None:
    eventually(lambda: all(services(pen)[name]["state"] == state for name, state in wanted.items()))


def open_gate(pen: Pen) -> None:
    eventually(lambda: pen.run("test -p /tmp/gate").exit_code == 0)
    pen.output("echo go >/tmp/gate")


def test_it_is_the_boxs_first_child_and_comes_back_when_it_dies(place: Yard, image: Image) -> None:
    with place.box(image=with_services(image)) as pen:
        become(pen, first="starting", second="waiting")
        open_gate(pen)
        become(pen, first="ready", second="ready")
        first = services(pen)["first"]
        # Nothing of the daemon, not even a thread, was there before it.
        assert (first["pid"], first["starts"]) == (2, 1)
        second = services(pen)["second"]["pid"]
        pen.output("kill -9 2")
        eventually(lambda: services(pen)["first"]["starts"] == 2)
        become(pen, first="starting")
        open_gate(pen)
        become(pen, first="ready")
        assert services(pen)["first"]["exit_code"] == 137
        assert services(pen)["first"]["log"].count("begun") == 2
        assert services(pen)["second"]["pid"] == second


def test_it_has_nothing_of_the_daemons(place: Yard, image: Image) -> None:
    with place.box(image=with_services(image)) as pen:
        open_gate(pen)
        become(pen, first="ready")
        shown = pen.output("for each in /proc/2/fd/*; do echo ${each##*/} $(readlink $each); done").split("\n")
        assert [line.split(":")[0] for line in shown if line] == ["0 /dev/null", "1 pipe", "2 pipe"]
        assert str(pen.record["token"]).encode() not in pen.run("cat /proc/2/environ /proc/*/cmdline").stdout
        group, session = pen.output("cut -d ' ' -f 5,6 /proc/2/stat").split()
        assert (group, session) == ("2", "2")


def test_what_an_earlier_life_left_does_not_make_it_ready(place: Yard, image: Image) -> None:
    with place.box(image=with_services(image)) as pen:
        open_gate(pen)
        become(pen, first="ready")
        place.do(pen.backend.snapshot(pen.record, "kept"))
    with place.box(image=with_services(image), snapshot="kept") as pen:
        become(pen, first="starting", second="waiting")
        assert pen.run(["test", "-e", SIGN]).exit_code != 0
        open_gate(pen)
        become(pen, first="ready", second="ready")
    place.do(place.backend.delete_snapshot("kept"))


@pytest.mark.parametrize("command", [("no-such-program",), "exec no-such-program"])
def test_one_that_cannot_be_started_does_not_keep_the_box_from_starting(
    place: Yard, image: Image, command: str | tuple[str, ...]
) -> None:
    with place.box(image=with_services(image, command)) as pen:
        eventually(lambda: services(pen)["first"]["starts"] >= 2)
        assert services(pen)["first"]["exit_code"] == 127
        assert any("no-such-program" in line for line in services(pen)["first"]["log"])
        assert pen.answers()


def test_words_reach_it_as_they_are(place: Yard, image: Image) -> None:
    words = ("sh", "-c", 'printf "%s|" "$@"; exec sleep 300', "sh", "two words", "$HOME", "`id`", "", "';x")
    with place.box(image=with_services(image, words)) as pen:
        eventually(lambda: services(pen)["first"]["log"] == ["two words|$HOME|`id`||';x|"])
