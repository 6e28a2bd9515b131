"""What the host tells the daemon at start, as one JSON document on an inherited descriptor.

Plain classes on purpose: importing `dataclasses` costs every box 8 ms and 1.5 MB.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SettingsError(Exception):
    """The configuration document cannot be used."""


class Listen:
    """Where to accept connections; exactly one of the three is set."""

    __slots__ = ("fd", "tcp", "unix")

    def __init__(self, document: Any) -> None:
        if not isinstance(document, dict) or len(document.keys() & {"fd", "unix", "tcp"}) != 1:
            raise SettingsError("'listen' must be one of {fd: N}, {unix: PATH} and {tcp: [HOST, PORT]}")
        self.fd: int | None = document.get("fd")
        self.unix: str | None = document.get("unix")
        address = document.get("tcp")
        self.tcp: tuple[str, int] | None = (str(address[0]), int(address[1])) if address else None


class Bridge:
    """A loopback port in the box that leads to a Unix socket the host serves."""

    __slots__ = ("port", "socket")

    def __init__(self, document: Any) -> None:
        self.port = int(document["port"])
        self.socket = str(document["socket"])


class User:
    """Who the box's processes appear to be."""

    __slots__ = ("home", "name", "shell")

    def __init__(self, document: Any) -> None:
        self.name = str(document.get("name", ""))
        self.home = str(document.get("home", ""))
        self.shell = str(document.get("shell", ""))


class ServiceSettings:
    """A program that runs from the start of the box on."""

    __slots__ = ("after", "env", "late", "name", "ready", "words")

    def __init__(self, document: Any) -> None:
        self.name = str(document["name"])
        if not self.name or "/" in self.name or "\0" in self.name:
            raise ValueError(f"{self.name!r} is no name for a service")
        command = document["command"]
        self.words = ["/bin/sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
        if not self.words or not self.words[-1]:
            raise ValueError(f"the service {self.name!r} has no command")
        self.env = {str(name): str(value) for name, value in (document.get("env") or {}).items()}
        self.after = tuple(str(name) for name in document.get("after") or ())
        self.ready: str | None = document.get("ready") or None
        self.late = document.get("late") is True


class Early:
    """The service that was started before the daemon, and what it was given."""

    __slots__ = ("marker", "output", "service")

    def __init__(self, document: Any) -> None:
        self.service = str(document["service"])
        self.output = int(document["output"])
        self.marker = str(document["marker"])


class Settings:
    """The whole document, checked; unknown keys are ignored."""

    __slots__ = (
        "bins", "bridges", "cwd", "disk_notice", "early", "entrypoint", "env", "limits", "listen", "rlimits",
        "services", "state", "token", "user",
    )  # fmt: skip

    def __init__(self, document: Any) -> None:
        if not isinstance(document, dict):
            raise SettingsError("the configuration must be a JSON object")
        try:
            self.listen = Listen(document.get("listen"))
            self.token = str(document.get("token") or "")
            self.env = {str(name): str(value) for name, value in (document.get("env") or {}).items()}
            self.cwd = str(document.get("cwd") or "/")
            self.disk_notice: str | None = document.get("disk_notice") or None
            self.user = User(document.get("user") or {})
            self.entrypoint = entrypoint_of(document)
            self.state = str(document.get("state") or "/var/lib/paddock")
            self.bridges = tuple(Bridge(item) for item in document.get("bridges") or ())
            self.limits = {str(name): float(value) for name, value in (document.get("limits") or {}).items()}
            self.rlimits = {str(name): int(value) for name, value in (document.get("rlimits") or {}).items()}
            self.bins = tuple(str(item) for item in document.get("bins") or ())
            self.services = in_order([ServiceSettings(item) for item in document.get("services") or ()])
            self.early = Early(document["early"]) if document.get("early") else None
            if self.early is not None and self.early.service not in {each.name for each in self.services}:
                raise ValueError(f"there is no service {self.early.service!r} that could be early")
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise SettingsError(f"the configuration has a value of the wrong shape: {error}") from None
        if not self.token:
            raise SettingsError("'token' must not be empty: every call to a box needs it")


def entrypoint_of(document: dict[str, Any]) -> tuple[str, ...] | None:
    words = document.get("entrypoint")
    if words is None:
        return None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError("'entrypoint' must be a list of words, or null")
    return tuple(words)


def in_order(services: list[ServiceSettings]) -> tuple[ServiceSettings, ...]:
    """Put services behind those they come after; ValueError when that cannot be."""
    ordered: dict[str, ServiceSettings] = {}
    if len({service.name for service in services}) != len(services):
        raise ValueError("two services have the same name")
    while len(ordered) < len(services):
        free = [each for each in services if each.name not in ordered and all(name in ordered for name in each.after)]
        if not free:
            stuck = next(each.name for each in services if each.name not in ordered)
            raise ValueError(f"the service {stuck!r} comes after one that there is not, or after itself")
        ordered.update((each.name, each) for each in free)
    return tuple(ordered.values())


def read_settings(descriptor: int) -> Settings:
    """Read the document from `descriptor` and close it."""
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read()
    try:
        return Settings(json.loads(data))
    except ValueError as error:
        raise SettingsError(f"the configuration is not JSON: {error}") from None
