"""Completes object names in a shell: fast, silent, and without starting a server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

DEFAULT_DATA_DIRECTORY = Path("~/.paddock")
DEFAULT_TENANT = "default"
_TIMEOUT = 0.2
_LIST_PATHS = {
    "sandbox": "/v1/sandboxes?pageSize=200",
    "run": "/v1/runs?pageSize=100",
    "session": "/v1/sessions?pageSize=100",
    "snapshot": "/v1/snapshots?pageSize=200",
    "pool": "/v1/pools",
    "key": "/v1/keys",
    "kind": "/v1/kinds",
    "image": "/v1/images",
    "model": "/v1/models",
}
_KIND_BY_METAVAR = {
    "SANDBOX": "sandbox",
    "RUN": "run",
    "SESSION": "session",
    "SNAPSHOT": "snapshot",
    "POOL": "pool",
    "KIND": "kind",
    "IMAGE": "image",
    "MODEL": "model",
}
_KIND_BY_MODULE_AND_METAVAR = {
    ("key_commands", "KEY"): "key",
    ("model_commands", "NAME"): "model",
}
"""Metavars that name an object only in one command's module."""

Completer = Callable[[str], list[str]]


def find_completer(module: str, parameter: str, metavar: str | None) -> Completer | None:
    """Return the completer of an argument or option, by its name and metavar; None if it names no object."""
    kind = _KIND_BY_MODULE_AND_METAVAR.get((module.rpartition(".")[2], metavar or "")) or _KIND_BY_METAVAR.get(
        metavar or ""
    )
    if kind is None and metavar == "NAME" and parameter in ("model", "pool"):
        kind = parameter
    if kind is None:
        return None

    def complete(incomplete: str) -> list[str]:
        try:
            return [name for name in dict.fromkeys(_list_names(kind)) if name.startswith(incomplete)]
        except Exception:  # Errors would disturb the line being typed.
            return []

    return complete


def typed_command_words() -> list[str]:
    """Return the words of the command line before the word being completed."""
    if "COMP_WORDS" in os.environ:
        return os.environ["COMP_WORDS"].split()[: int(os.environ.get("COMP_CWORD") or 0)]
    typed = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return typed.split() if typed.endswith(" ") else typed.split()[:-1]


def _list_names(kind: str) -> Iterator[str]:
    data = _data_directory()
    url = _typed_option("--server") or os.environ.get("PADDOCK_URL")
    if url:
        return _list_names_from_server(url, data, kind)
    if kind in ("kind", "image", "model"):
        try:
            return _list_names_from_server(str(_read_json_object(data / "server.json")["url"]), data, kind)
        except (OSError, ValueError, KeyError, TypeError):
            return {"kind": _configured_kinds, "image": _local_images, "model": _configured_models}[kind](data)
    from paddock.store.shell_completion_names import read_completion_names

    # Even if a server uses this data directory, reading its database is faster than asking it.
    return chain(
        ["last"] if kind == "session" else [], read_completion_names(data / "paddock.db", kind, DEFAULT_TENANT)
    )


def _list_names_from_server(url: str, data: Path, kind: str) -> Iterator[str]:
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url if "://" in url else f"http://{url}")
    key = os.environ.get("PADDOCK_API_KEY")
    if key is None and parts.hostname in ("127.0.0.1", "localhost", "::1"):
        key = (data / "local.key").read_text().strip()
    secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=_TIMEOUT)
    try:
        connection.request("GET", _LIST_PATHS[kind], headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        if answer.status != 200:
            return iter(())
        import json

        document = json.loads(answer.read(2**22))
    finally:
        connection.close()
    return iter(list(_names_in_response(kind, document)))


def _names_in_response(kind: str, document: dict[str, Any]) -> Iterator[str]:
    for item in document.get("items") or document.get("data") or []:
        name = (item.get("metadata") or {}).get("name") if kind == "sandbox" else item.get("name")
        if name and kind != "key":
            yield str(name)
        if item.get("id"):
            yield str(item["id"])
    yield from map(str, document.get("known") or [])


def _configured_kinds(data: Path) -> Iterator[str]:
    from importlib.metadata import entry_points

    yield from (entry.name for entry in entry_points(group="paddock.kinds"))
    yield from map(str, _read_config_file().get("kinds") or {})


def _local_images(data: Path) -> Iterator[str]:
    package = Path(__file__).parents[2]
    checkout = package.parents[1]
    shipped = checkout / "images" if (checkout / "pyproject.toml").is_file() else package / "recipes"
    own = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "paddock/images"
    yield "host"
    for directory in (shipped, own):
        yield from sorted(path.stem for path in directory.glob("*.yaml"))
    built = (re.fullmatch(r"(\w[\w.-]*)-[0-9a-f]{12}", path.name) for path in (data / "images").glob("*"))
    yield from sorted(match[1] for match in built if match)


def _configured_models(data: Path) -> Iterator[str]:
    named = (_read_config_file().get("llm") or {}).get("models") or {}
    return (str(name) for name in named if "*" not in str(name))


def _data_directory() -> Path:
    chosen = (
        _typed_option("--data")
        or os.environ.get("PADDOCK_DATA")
        or _read_config_file().get("data")
        or DEFAULT_DATA_DIRECTORY
    )
    return Path(chosen).expanduser()


def _read_config_file() -> dict[str, Any]:
    """Return the configuration file's raw content; empty if there is none."""
    named = _typed_option("--config") or os.environ.get("PADDOCK_CONFIG")
    candidates = [named] if named else ["paddock.yaml", "~/.config/paddock/paddock.yaml"]
    for candidate in candidates:
        path = Path(candidate).expanduser()
        if path.is_file():
            import yaml

            found = yaml.safe_load(path.read_text())
            return found if isinstance(found, dict) else {}
    return {}


def _typed_option(name: str) -> str | None:
    words = typed_command_words()
    for index, word in enumerate(words):
        if word == name and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _read_json_object(path: Path) -> dict[str, Any]:
    import json

    document = json.loads(path.read_text())
    return document if isinstance(document, dict) else {}
