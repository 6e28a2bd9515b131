"""Package indexes that the server's own pip, uv, npm and apt use, for the network preset `packages`.

Sandboxes get the same indexes by environment variables, so that they work behind company mirrors.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_PYTHON_INDEX = "https://pypi.org/simple"
DEFAULT_NPM_REGISTRY = "https://registry.npmjs.org/"
_COMPANION_HOSTS = {"pypi.org": ("files.pythonhosted.org",)}
"""Hosts that serve the files of an index."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_APT_ADDRESS = re.compile(r"https?://[^\s\]]+")
_PIP_FILES = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
_NPM_FILES = ("/etc/npmrc", "/usr/etc/npmrc", "~/.npmrc")


@dataclass(frozen=True)
class PackageIndexes:
    """Addresses of package indexes."""

    python: tuple[str, ...]
    """The main index first."""
    npm: str
    apt: tuple[str, ...] = ()

    def targets(self) -> tuple[str, ...]:
        """Return `HOST:PORT` of every index and of the hosts that serve its files."""
        found: dict[str, None] = {}
        for address in (*self.python, self.npm, *self.apt):
            parts = urlsplit(address)
            if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
                continue
            port = parts.port or _DEFAULT_PORTS[parts.scheme]
            for host in (parts.hostname, *_COMPANION_HOSTS.get(parts.hostname, ())):
                found[f"[{host}]:{port}" if ":" in host else f"{host}:{port}"] = None
        return tuple(found)

    def environment(self) -> dict[str, str]:
        """Return variables for pip, uv and npm in a sandbox; none for public defaults."""
        main, *extra = self.python
        variables: dict[str, str] = {}
        if main != DEFAULT_PYTHON_INDEX:
            variables |= {"PIP_INDEX_URL": main, "UV_DEFAULT_INDEX": main}
        if extra:
            variables |= {"PIP_EXTRA_INDEX_URL": " ".join(extra), "UV_INDEX": " ".join(extra)}
        if self.npm != DEFAULT_NPM_REGISTRY:
            variables["npm_config_registry"] = self.npm
        return variables


def read_package_indexes(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> PackageIndexes:
    """Read the configuration of this machine; `root` replaces `/` in tests."""
    pip = _pip_settings(environment, root)
    main = environment.get("PIP_INDEX_URL") or environment.get("UV_DEFAULT_INDEX") or pip.get("index-url")
    extra = environment.get("PIP_EXTRA_INDEX_URL") or pip.get("extra-index-url", "")
    return PackageIndexes(
        python=tuple(_web_addresses([main or DEFAULT_PYTHON_INDEX, *extra.split()])) or (DEFAULT_PYTHON_INDEX,),
        npm=_npm_registry(environment, root),
        apt=tuple(dict.fromkeys(_apt_addresses(root / "etc/apt"))),
    )


def _web_addresses(addresses: Iterable[str]) -> Iterator[str]:
    """Yield addresses of HTTP servers; local directories cannot be reached from a sandbox."""
    return (address for address in addresses if urlsplit(address).scheme in _DEFAULT_PORTS)


def _pip_settings(environment: Mapping[str, str], root: Path) -> Mapping[str, str]:
    """Return pip's global settings; later files override earlier ones, as in pip."""
    found: dict[str, str] = {}
    paths = [*_configuration_files(_PIP_FILES, environment, root)]
    if own := environment.get("PIP_CONFIG_FILE"):
        paths.append(Path(own))
    for path in paths:
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(path.read_text(errors="replace"))
        except (OSError, configparser.Error):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                found |= dict(parser.items(section))
    return found


def _npm_registry(environment: Mapping[str, str], root: Path) -> str:
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if environment.get(name):
            return environment[name]
    registry = DEFAULT_NPM_REGISTRY
    for path in _configuration_files(_NPM_FILES, environment, root):
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            name, separator, value = line.partition("=")
            if separator and name.strip() == "registry" and value.strip():
                registry = value.strip()
    return registry


def _configuration_files(paths: Sequence[str], environment: Mapping[str, str], root: Path) -> Iterator[Path]:
    home = Path(environment.get("HOME") or "/root")
    for path in paths:
        yield home / path[2:] if path.startswith("~/") else root / path.lstrip("/")


def _apt_addresses(apt_directory: Path) -> Iterator[str]:
    parts = apt_directory / "sources.list.d"
    for path in (apt_directory / "sources.list", *sorted(parts.glob("*.list")), *sorted(parts.glob("*.sources"))):
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            yield from _APT_ADDRESS.findall(line.partition("#")[0])
