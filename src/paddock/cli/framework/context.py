"""The context that every command receives: shared options, configuration, and clients of the server."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.cli.connection.server_address import (
    DEFAULT_URL,
    ServerTarget,
    is_loopback_url,
    no_server_error,
    normalize_server_url,
    wait_for_server_url,
)
from paddock.cli.output.command_output import CommandOutput
from paddock.cli.output.errors import CliError
from paddock.errors import ConfigError

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient
    from paddock.config import LoadedConfig


class CliContext:
    """Shared options of one command invocation, with access to the configuration and the server."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        server: str | None = None,
        data: str | None = None,
        config: str | None = None,
        debug: bool = False,
    ) -> None:
        self.out = CommandOutput(as_json)
        self.as_json = as_json
        self.debug = debug
        self._server = server
        self._data = data
        self._config = config

    @cached_property
    def strict_config(self) -> LoadedConfig:
        """The configuration and the origin of each value. Raises `ConfigError` if a variable is unset."""
        return self.load_config({})

    @cached_property
    def lenient_config(self) -> LoadedConfig:
        """The configuration for clients: variables that only the server needs may be unset."""
        return self.load_config({}, need_variables=False)

    @cached_property
    def repaired_config(self) -> LoadedConfig:
        """The configuration with the defaults of its invalid settings, for checks of the machine."""
        return self.load_config({}, need_variables=False, skip_invalid=True)

    def load_config(
        self,
        flags: dict[str, Any],
        only: Iterable[str] | None = None,
        *,
        need_variables: bool = True,
        skip_invalid: bool = False,
    ) -> LoadedConfig:
        """Load the configuration, overridden by `flags`; with `only`, read and check only these settings."""
        from paddock.config import load_config

        values = {"config": self._config, "data": self._data, **flags}
        return load_config(flags=values, only=only, need_variables=need_variables, skip_invalid=skip_invalid)

    @cached_property
    def data_directory(self) -> Path:
        """The data directory; other settings are not checked."""
        return self.load_config({}, only=["data"]).config.data

    @property
    def default_url(self) -> str:
        """Address on which a server with this configuration would listen."""
        try:
            server = self.load_config({}, only=["server.host", "server.port"]).config.server
        except ConfigError:
            return DEFAULT_URL
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
        host = everywhere.get(server.host, server.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"http://{host}:{server.port}" if server.port else DEFAULT_URL

    def location_options(self) -> list[str]:
        """Command-line options that give another `paddock` command the same data directory and configuration."""
        values = {"--data": self._data, "--config": self._config}
        return [word for name, value in values.items() if value for word in (name, os.path.abspath(value))]

    @property
    def has_named_server(self) -> bool:
        """Return whether `--server` or PADDOCK_URL names a server."""
        return bool(self._server or os.environ.get("PADDOCK_URL"))

    @property
    def has_server(self) -> bool:
        """Return whether a server is named, or one responds on the data directory."""
        from paddock.cli.connection.server_finder import find_responding_server

        named = self.has_named_server or bool(os.environ.get("PADDOCK_API_KEY"))
        return named or find_responding_server(self.data_directory) is not None

    def open_client(self) -> ServerClient:
        """Return a client of the server. Raises `NoServerError` if no server is running."""
        from paddock.cli.connection.server_client import ServerClient

        target = self.server_target()
        return ServerClient(target.url, target.key)

    def open_read_client(self) -> ServerClient:
        """Return a read-only client: of the named or running server, else of the data directory itself."""
        from paddock.cli.connection.data_directory_client import DataDirectoryClient

        return self.open_client() if self.has_server else DataDirectoryClient(self)

    def server_target(self) -> ServerTarget:
        """Return the server's address and API key.

        The local key has administrator rights, so it is only sent to the server of this data directory or to a named
        server on this machine.
        """
        named = self._server or os.environ.get("PADDOCK_URL")
        key = os.environ.get("PADDOCK_API_KEY")
        if named:
            url = normalize_server_url(named)
            if key is None and is_loopback_url(url):
                key = self._read_local_key()
            return ServerTarget(url, key)
        running = wait_for_server_url(self.data_directory)
        if running is None and key is None:
            raise no_server_error(self.default_url)
        return ServerTarget(running or self.default_url, key or self._read_local_key())

    def _read_local_key(self) -> str | None:
        from paddock.auth.key_secrets import read_key_secret_file

        path = self.data_directory / "local.key"
        try:
            return read_key_secret_file(path)
        except PermissionError:
            raise CliError(f"{path} belongs to another user", hint="set PADDOCK_API_KEY to your own key") from None
