"""Completes names of things in a shell: fast, silent, and without starting a server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

DATA = Path("~/.paddock")
TENANT = "default"
_TIMEOUT = 0.2
_PATHS = {
    "sandbox": "/v1/sandboxes?pageSize=200",
    "run": "/v1/runs?pageSize=100",
    "session": "/v1/sessions?page_size=100",
    "snapshot": "/v1/snapshots?pageSize=200",
    "pool": "/v1/pools",
    "key": "/v1/keys",
    "kind": "/v1/kinds",
    "image": "/v1/images",
    "model": "/v1/models",
}
_METAVARS = {
    "SANDBOX": "sandbox",
    "RUN": "run",
    "SESSION": "session",
    "SNAPSHOT": "snapshot",
    "POOL": "pool",
    "KIND": "kind",
    "IMAGE": "image",
    "MODEL": "model",
}
_OTHERS = {
    ("key", "KEY"): "key",
    ("llm", "NAME"): "model",
}
"""Placeholders that mean these things in the modules of these commands alone."""

Completer = Callable[[str], list[str]]


def completer(module: str, parameter: str, metavar: str | None) -> Completer | None:
    """What completes an argument or option, by its name and its placeholder in help; None if it has no known names."""
    kind = _OTHERS.get((module.rpartition(".")[2], metavar or "")) or _METAVARS.get(metavar or "")
    if kind is None and metavar == "NAME" and parameter in ("model", "pool"):
        kind = parameter
    if kind is None:
        return None

    def complete(incomplete: str) -> list[str]:
        try:
            return [name for name in dict.fromkeys(_names(kind)) if name.startswith(incomplete)]
        except Exception:  # A shell has no place for errors while somebody types.
            return []

    return complete


def words() -> list[str]:
    """The command line that a shell wants completed, without the word that is being typed."""
    if "COMP_WORDS" in os.environ:
        return os.environ["COMP_WORDS"].split()[: int(os.environ.get("COMP_CWORD") or 0)]
    typed = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return typed.split() if typed.endswith(" ") else typed.split()[:-1]


def _names(kind: str) -> Iterator[str]:
    data = _data()
    url = _option("--server") or os.environ.get("PADDOCK_URL")
    if url:
        return _from_server(url, data, kind)
    if kind in ("kind", "image", "model"):
        try:
            return _from_server(str(_document(data / "server.json")["url"]), data, kind)
        except (OSError, ValueError, KeyError, TypeError):
            return {"kind": _kinds, "image": _images, "model": _models}[kind](data)
    from paddock.store.names import names

    # Beside a server of this data directory, its database says the same, and sooner.
    return chain(["last"] if kind == "session" else [], names(data / "paddock.db", kind, TENANT))


def _from_server(url: str, data: Path, kind: str) -> Iterator[str]:
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
        connection.request("GET", _PATHS[kind], headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        if answer.status != 200:
            return iter(())
        import json

        document = json.loads(answer.read(2**22))
    finally:
        connection.close()
    return iter(list(_told(kind, document)))


def _told(kind: str, document: dict[str, Any]) -> Iterator[str]:
    for item in document.get("items") or document.get("data") or []:
        name = (item.get("metadata") or {}).get("name") if kind == "sandbox" else item.get("name")
        if name and kind != "key":
            yield str(name)
        if item.get("id"):
            yield str(item["id"])
    yield from map(str, document.get("known") or [])


def _kinds(data: Path) -> Iterator[str]:
    from importlib.metadata import entry_points

    yield from (entry.name for entry in entry_points(group="paddock.kinds"))
    yield from map(str, _settings().get("kinds") or {})


def _images(data: Path) -> Iterator[str]:
    package = Path(__file__).parents[1]
    checkout = package.parents[1]
    shipped = checkout / "images" if (checkout / "pyproject.toml").is_file() else package / "recipes"
    own = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "paddock/images"
    yield "host"
    for directory in (shipped, own):
        yield from sorted(path.stem for path in directory.glob("*.yaml"))
    built = (re.fullmatch(r"(\w[\w.-]*)-[0-9a-f]{12}", path.name) for path in (data / "images").glob("*"))
    yield from sorted(match[1] for match in built if match)


def _models(data: Path) -> Iterator[str]:
    named = (_settings().get("llm") or {}).get("models") or {}
    return (str(name) for name in named if "*" not in str(name))


def _data() -> Path:
    chosen = _option("--data") or os.environ.get("PADDOCK_DATA") or _settings().get("data") or DATA
    return Path(chosen).expanduser()


def _settings() -> dict[str, Any]:
    """The configuration file as it is written; nothing where it cannot be read."""
    named = _option("--config") or os.environ.get("PADDOCK_CONFIG")
    places = [named] if named else ["paddock.yaml", "~/.config/paddock/paddock.yaml"]
    for place in places:
        path = Path(place).expanduser()
        if path.is_file():
            import yaml

            found = yaml.safe_load(path.read_text())
            return found if isinstance(found, dict) else {}
    return {}


def _option(name: str) -> str | None:
    given = words()
    for place, word in enumerate(given):
        if word == name and place + 1 < len(given):
            return given[place + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _document(path: Path) -> dict[str, Any]:
    import json

    document = json.loads(path.read_text())
    return document if isinstance(document, dict) else {}
