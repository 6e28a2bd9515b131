"""What is kept of a run on disk, in files that a person can read."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit

import yaml

from paddock.errors import InvalidInput
from paddock.model.runs import Result
from paddock.model.task import Task

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
HIDDEN = "(hidden)"
"""Stands in `task.yaml` for what may be a secret."""
_SECRETIVE = re.compile(
    r"key|token|secret|passw|_pwd|credential|auth|cookie|dsn|(?:^|_)(?:pat|pw|pwd|pass)(?:_|$)", re.IGNORECASE
)
_LOGIN = re.compile(r"://[^/?#\s]*@")
"""An address with a user's name or password in it."""


class RunFolder:
    """The folder of one run. Nobody but its owner can look into it.

    Files appear whole or not at all. Nothing here waits for the event loop: call it in a thread where much is written.
    """

    def __init__(self, root: Path, run_id: str) -> None:
        if not RUN_ID.fullmatch(run_id):
            raise InvalidInput(f"{run_id[:80]!r} is no id of a run")
        self.run_id = run_id
        self.path = root / run_id
        self.task = self.path / "task.yaml"
        self.result = self.path / "result.json"
        self.deliverables = self.path / "deliverables"
        self.logs = self.path / "logs"
        self.conversation = self.path / "conversation.jsonl"
        self.events = self.path / "events.jsonl"

    def create(self) -> None:
        """Make the folder; one that is there already stays as it is."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (self.path, self.deliverables, self.logs):
            directory.mkdir(mode=0o700, exist_ok=True)

    def write_task(self, document: Mapping[str, Any]) -> None:
        """Keep the task as it is run, as `readable` returns it."""
        text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
        with self.replacing(self.task) as file:
            file.write(text.encode(errors="replace"))

    def write_result(self, result: Result) -> None:
        """Keep what came of the run; once this returns it outlasts a power failure."""
        document = json.dumps(result.model_dump(mode="json"), indent=2, ensure_ascii=False)
        with self.replacing(self.result, durable=True) as file:
            file.write(document.encode(errors="replace") + b"\n")

    async def write_lines(self, path: Path, lines: AsyncIterable[bytes]) -> int:
        """Keep lines in one of the folder's files, and say how many there were."""
        count = 0
        with self.replacing(path) as file:
            async for line in lines:
                file.write(line if line.endswith(b"\n") else line + b"\n")
                count += 1
        return count

    def attempt_logs(self, attempt: int) -> Path:
        """The directory for what the agent writes: `logs` itself, and `logs/attempt-2` and so on for retries."""
        directory = self.logs if attempt <= 1 else self.logs / f"attempt-{attempt}"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory

    def clear_deliverables(self) -> None:
        """Forget what came back before, for an attempt that begins anew."""
        shutil.rmtree(self.deliverables, ignore_errors=True)
        self.deliverables.mkdir(mode=0o700, exist_ok=True)

    def remove(self) -> None:
        """Remove the folder with all that is in it; one that is not there is fine."""
        # Under another name first, so that nobody finds half of it, however long the rest takes.
        trash = self.path.with_name(f".{self.run_id}.{secrets.token_hex(4)}")
        try:
            self.path.rename(trash)
        except FileNotFoundError:
            pass
        for left in self.path.parent.glob(f".{self.run_id}.*"):
            shutil.rmtree(left, onerror=_unless_gone)

    @contextmanager
    def replacing(self, path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
        """A file that takes the place of `path` when all is written, and is never seen before."""
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        if durable:
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)


def readable(task: Task, mask: Callable[[str], str] = str) -> dict[str, Any]:
    """A task as its file would have it, without what may be a secret: headers, passwords, variables named so.

    `mask` replaces secrets in all other texts.
    """
    document: dict[str, Any] = _masked(task.model_dump(mode="json", exclude_defaults=True), mask)
    if task.env:
        document["env"] = _masked(_without_secrets(task.env), mask)
    for server, shown in zip(task.mcp, document.get("mcp", ()), strict=False):
        if server.headers:
            shown["headers"] = dict.fromkeys(server.headers, HIDDEN)
        if server.env:
            shown["env"] = _masked(_without_secrets(server.env), mask)
        if server.url:
            shown["url"] = mask(without_password(server.url))
    return document


def without_password(url: str) -> str:
    """An address as it may be shown: without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    query = HIDDEN if parts.query else ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))


def remove_left(root: Path) -> None:
    """Finish what a server that died was removing."""
    for left in root.glob(".*.????????"):
        shutil.rmtree(left, onerror=_unless_gone)


def _unless_gone(_: object, __: str, error: tuple[type[BaseException], BaseException, Any]) -> None:
    """Somebody else may remove the same."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def _masked(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {name: _masked(each, mask) for name, each in value.items()}
    return [_masked(each, mask) for each in value] if isinstance(value, list) else value


def _without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    def hidden(name: str, value: str) -> bool:
        return bool(_SECRETIVE.search(name) or _LOGIN.search(value))

    return {name: HIDDEN if hidden(name, value) else value for name, value in variables.items()}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as people do."""

    def represent_text(self, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(str, _Dumper.represent_text)
