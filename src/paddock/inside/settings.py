"""Settings that the host passes at start, as one JSON document on an inherited descriptor.

Plain classes on purpose: importing `dataclasses` costs every sandbox 8 ms and 1.5 MB.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class DaemonSettingsError(Exception):
    """The configuration document cannot be used."""


class ListenSettings:
    """Where to accept connections; exactly one field is set."""

    __slots__ = ("fd", "tcp", "unix")

    def __init__(self, document: Any) -> None:
        if not isinstance(document, dict) or len(document.keys() & {"fd", "unix", "tcp"}) != 1:
            raise DaemonSettingsError("'listen' must be one of {fd: N}, {unix: PATH} and {tcp: [HOST, PORT]}")
        self.fd: int | None = document.get("fd")
        self.unix: str | None = document.get("unix")
        address = document.get("tcp")
        self.tcp: tuple[str, int] | None = (str(address[0]), int(address[1])) if address else None


class UplinkPortSettings:
    """A loopback port in the sandbox that forwards to an uplink service on a Unix socket of the host."""

    __slots__ = ("port", "socket_path")

    def __init__(self, document: Any) -> None:
        self.port = int(document["port"])
        self.socket_path = str(document["socket"])


class NetworkSettings:
    """How connections and DNS queries of the sandbox arrive, and the socket to which connections are passed."""

    __slots__ = ("connection_port", "dns_port", "redirected", "socket_path")

    def __init__(self, document: Any) -> None:
        self.socket_path = str(document["socket"])
        self.connection_port = int(document["connection_port"])
        self.dns_port = int(document["dns_port"])
        self.redirected = document.get("redirected") is True


class UserSettings:
    """Name, home and shell of the sandbox's user."""

    __slots__ = ("home", "name", "shell")

    def __init__(self, document: Any) -> None:
        self.name = str(document.get("name", ""))
        self.home = str(document.get("home", ""))
        self.shell = str(document.get("shell", ""))


class ServiceSettings:
    """A supervised service: its command, variables and order."""

    __slots__ = ("after", "env", "late", "name", "ready", "words")

    def __init__(self, document: Any) -> None:
        self.name = str(document["name"])
        if not self.name or "/" in self.name or "\0" in self.name:
            raise ValueError(f"{self.name!r} is not a valid service name")
        command = document["command"]
        self.words = ["/bin/sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
        if not self.words or not self.words[-1]:
            raise ValueError(f"the service {self.name!r} has no command")
        self.env = {str(name): str(value) for name, value in (document.get("env") or {}).items()}
        self.after = tuple(str(name) for name in document.get("after") or ())
        self.ready: str | None = document.get("ready") or None
        self.late = document.get("late") is True


class EarlyServiceSettings:
    """The service that was started before the daemon, with its output descriptor and marker."""

    __slots__ = ("marker", "output", "service")

    def __init__(self, document: Any) -> None:
        self.service = str(document["service"])
        self.output = int(document["output"])
        self.marker = str(document["marker"])


class DaemonSettings:
    """The validated settings document; unknown keys are ignored."""

    __slots__ = (
        "cwd",
        "disk_notice",
        "early",
        "entrypoint",
        "env",
        "limits",
        "listen",
        "network",
        "path_directories",
        "rlimits",
        "services",
        "state",
        "token",
        "uplink_ports",
        "user",
    )  # fmt: skip

    def __init__(self, document: Any) -> None:
        if not isinstance(document, dict):
            raise DaemonSettingsError("the configuration must be a JSON object")
        try:
            self.listen = ListenSettings(document.get("listen"))
            self.token = str(document.get("token") or "")
            self.env = {str(name): str(value) for name, value in (document.get("env") or {}).items()}
            self.cwd = str(document.get("cwd") or "/")
            self.disk_notice: str | None = document.get("disk_notice") or None
            self.user = UserSettings(document.get("user") or {})
            self.entrypoint = parse_entrypoint(document)
            self.state = str(document.get("state") or "/var/lib/paddock")
            self.uplink_ports = tuple(UplinkPortSettings(item) for item in document.get("bridges") or ())
            self.network = NetworkSettings(document["network"]) if document.get("network") else None
            self.limits = {str(name): float(value) for name, value in (document.get("limits") or {}).items()}
            self.rlimits = {str(name): int(value) for name, value in (document.get("rlimits") or {}).items()}
            self.path_directories = tuple(str(item) for item in document.get("bins") or ())
            self.services = sort_services_by_start_order(
                [ServiceSettings(item) for item in document.get("services") or ()]
            )
            self.early = EarlyServiceSettings(document["early"]) if document.get("early") else None
            if self.early is not None and self.early.service not in {each.name for each in self.services}:
                raise ValueError(f"the early service {self.early.service!r} is not among the services")
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise DaemonSettingsError(f"the configuration has a value of the wrong shape: {error}") from None
        if not self.token:
            raise DaemonSettingsError("'token' must not be empty: every call to a sandbox needs it")


def parse_entrypoint(document: dict[str, Any]) -> tuple[str, ...] | None:
    words = document.get("entrypoint")
    if words is None:
        return None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError("'entrypoint' must be a list of words, or null")
    return tuple(words)


def sort_services_by_start_order(services: list[ServiceSettings]) -> tuple[ServiceSettings, ...]:
    """Sort services so that each follows the ones it comes after. Raises ValueError if that is impossible."""
    ordered: dict[str, ServiceSettings] = {}
    if len({service.name for service in services}) != len(services):
        raise ValueError("two services have the same name")
    while len(ordered) < len(services):
        free = [each for each in services if each.name not in ordered and all(name in ordered for name in each.after)]
        if not free:
            unresolved = next(each.name for each in services if each.name not in ordered)
            raise ValueError(f"the service {unresolved!r} comes after an unknown service or after itself")
        ordered.update((each.name, each) for each in free)
    return tuple(ordered.values())


def read_daemon_settings(descriptor: int) -> DaemonSettings:
    """Read the document from `descriptor` and close it."""
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read()
    try:
        return DaemonSettings(json.loads(data))
    except ValueError as error:
        raise DaemonSettingsError(f"the configuration is not JSON: {error}") from None
