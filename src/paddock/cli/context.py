"""What every command is handed: its common options, the configuration, the way to the server."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from paddock.cli.failure import CliError, NoServer
from paddock.cli.output import Output
from paddock.errors import ConfigError

if TYPE_CHECKING:
    from paddock.cli.client import Client
    from paddock.config import Loaded

DEFAULT_URL = "http://127.0.0.1:8420"


@dataclass(frozen=True)
class Target:
    """A server and the key for it."""

    url: str
    key: str | None


class Cli:
    """One run of the command."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        server: str | None = None,
        data: str | None = None,
        config: str | None = None,
        debug: bool = False,
    ) -> None:
        self.out = Output(as_json)
        self.as_json = as_json
        self.debug = debug
        self._server = server
        self._data = data
        self._config = config

    @cached_property
    def loaded(self) -> Loaded:
        """The configuration, with where its values came from. Raises `ConfigError`."""
        return self.load({})

    @cached_property
    def readable(self) -> Loaded:
        """The configuration as a client reads it: variables that only a server needs may be unset."""
        return self.load({}, need_variables=False)

    def load(self, flags: dict[str, Any], only: Iterable[str] | None = None, *, need_variables: bool = True) -> Loaded:
        """The configuration with some flags on top; only some settings of it, if that is enough."""
        from paddock.config import load

        given = {"config": self._config, "data": self._data, **flags}
        return load(flags=given, only=only, need_variables=need_variables)

    @cached_property
    def data(self) -> Path:
        """The data directory. What else the configuration says, or lacks, is the server's business."""
        return self.load({}, only=["data"]).config.data

    @property
    def default_url(self) -> str:
        """Where a server of this configuration would listen."""
        try:
            server = self.load({}, only=["server.host", "server.port"]).config.server
        except ConfigError:
            return DEFAULT_URL
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
        host = everywhere.get(server.host, server.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"http://{host}:{server.port}" if server.port else DEFAULT_URL

    def same_place(self) -> list[str]:
        """Words that give another command of ours the same data directory and configuration."""
        given = {"--data": self._data, "--config": self._config}
        return [word for name, value in given.items() if value for word in (name, os.path.abspath(value))]

    @property
    def names_server(self) -> bool:
        """Whether a server was named, so that none must be looked for."""
        return bool(self._server or os.environ.get("PADDOCK_URL"))

    def client(self) -> Client:
        """A client of the server. Raises `NoServer` when there cannot be one."""
        from paddock.cli.client import Client

        target = self.target()
        return Client(target.url, target.key)

    def reading(self) -> Client:
        """A client for a command that only reads: of the server that is named or runs, else of the data directory."""
        from paddock.cli.run_server import answering
        from paddock.cli.store_client import StoreClient

        if self.names_server or os.environ.get("PADDOCK_API_KEY") or answering(self.data):
            return self.client()
        return StoreClient(self)

    def target(self) -> Target:
        """Where the server is and which key it takes.

        The local key is an administrator's, so it is only shown to the server of this data directory, or to one on
        this machine that was named.
        """
        named = self._server or os.environ.get("PADDOCK_URL")
        key = os.environ.get("PADDOCK_API_KEY")
        if named:
            url = _checked(named)
            if key is None and _is_local(url):
                key = self._local_key()
            return Target(url, key)
        running = server_of(self.data)
        if running is None and key is None:
            raise no_server(self.default_url)
        return Target(running or self.default_url, key or self._local_key())

    def _local_key(self) -> str | None:
        from paddock.auth.secrets import read_secret

        path = self.data / "local.key"
        try:
            return read_secret(path)
        except PermissionError:
            raise CliError(f"{path} belongs to another user", hint="set PADDOCK_API_KEY to a key of your own") from None


def no_server(url: str) -> NoServer:
    return NoServer(f"no Paddock server at {url}; start one with: paddock serve")


def server_of(data: Path) -> str | None:
    """The address of the server that uses a data directory now, if one does."""
    import json

    if not is_served(data):
        return None
    try:
        document = json.loads((data / "server.json").read_text(encoding="utf-8"))
        return str(document["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_served(data: Path) -> bool:
    """Whether a server holds a data directory's lock."""
    import fcntl

    try:
        descriptor = os.open(data / "server.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        raise CliError(f"{data} belongs to another user", hint="choose another directory with --data") from None
    try:
        # Shared, so that two that only look never take each other for a server.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _checked(text: str) -> str:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise CliError(f"{text!r} is not the address of a server", hint=f"write it like {DEFAULT_URL}")
    return url.rstrip("/")


def _is_local(url: str) -> bool:
    from paddock.auth.exposure import is_loopback

    return is_loopback(urlsplit(url).hostname or "")
