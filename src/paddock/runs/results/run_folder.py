"""Run folders: task, result, events, logs and deliverables as readable files."""

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
from paddock.model.runs import RunResult
from paddock.model.task import Task

RUN_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
HIDDEN_VALUE = "(hidden)"
"""Placeholder for possible secrets in `task.yaml`."""
_SECRET_NAME = re.compile(
    r"key|token|secret|passw|_pwd|credential|auth|cookie|dsn|(?:^|_)(?:pat|pw|pwd|pass)(?:_|$)", re.IGNORECASE
)
_URL_WITH_CREDENTIALS = re.compile(r"://[^/?#\s]*@")
"""URL with a user name or password."""


class RunFolder:
    """Folder of one run, readable by its owner only.

    Files are written atomically. Methods block: call them in a thread for large writes.
    """

    def __init__(self, root: Path, run_id: str) -> None:
        if not RUN_ID_PATTERN.fullmatch(run_id):
            raise InvalidInput(f"{run_id[:80]!r} is no id of a run")
        self.run_id = run_id
        self.path = root / run_id
        self.task = self.path / "task.yaml"
        self.result = self.path / "result.json"
        self.deliverables = self.path / "deliverables"
        self.logs = self.path / "logs"
        self.conversation = self.path / "conversation.jsonl"
        self.events = self.path / "events.jsonl"
        self.network = self.path / "network.jsonl"
        self.mcp_calls = self.path / "mcp.jsonl"

    def create(self) -> None:
        """Create the folder. Idempotent."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (self.path, self.deliverables, self.logs):
            directory.mkdir(mode=0o700, exist_ok=True)

    def write_task(self, document: Mapping[str, Any]) -> None:
        """Write the task document returned by `mask_task_secrets`."""
        text = yaml.dump(document, Dumper=_BlockStyleDumper, sort_keys=False, allow_unicode=True, width=120)
        with self.open_for_replacement(self.task) as file:
            file.write(text.encode(errors="replace"))

    def write_result(self, result: RunResult) -> None:
        """Write the result durably."""
        document = json.dumps(result.model_dump(mode="json"), indent=2, ensure_ascii=False)
        with self.open_for_replacement(self.result, durable=True) as file:
            file.write(document.encode(errors="replace") + b"\n")

    async def write_lines(self, path: Path, lines: AsyncIterable[bytes]) -> int:
        """Write lines to a file of the folder. Return their number."""
        count = 0
        with self.open_for_replacement(path) as file:
            async for line in lines:
                file.write(line if line.endswith(b"\n") else line + b"\n")
                count += 1
        return count

    def attempt_log_directory(self, attempt: int) -> Path:
        """Return the log directory of an attempt: `logs`, then `logs/attempt-2` and so on."""
        directory = self.logs if attempt <= 1 else self.logs / f"attempt-{attempt}"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory

    def clear_deliverables(self) -> None:
        """Remove deliverables of an earlier attempt."""
        shutil.rmtree(self.deliverables, ignore_errors=True)
        self.deliverables.mkdir(mode=0o700, exist_ok=True)

    def remove(self) -> None:
        """Remove the folder. Idempotent."""
        # Rename first, so that a partly removed folder is never visible.
        trash = self.path.with_name(f".{self.run_id}.{secrets.token_hex(4)}")
        try:
            self.path.rename(trash)
        except FileNotFoundError:
            pass
        for left in self.path.parent.glob(f".{self.run_id}.*"):
            shutil.rmtree(left, onerror=_ignore_missing)

    @contextmanager
    def open_for_replacement(self, path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
        """Open a temporary file that replaces `path` when it is complete."""
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


def mask_task_secrets(task: Task, mask: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the task document without possible secrets: headers, passwords, secret-like variables.

    `mask` is applied to all other texts.
    """
    document: dict[str, Any] = _mask_values(task.model_dump(mode="json", exclude_defaults=True), mask)
    if task.env:
        document["env"] = _mask_values(_mask_variables(task.env), mask)
    for server, shown in zip(task.mcp, document.get("mcp", ()), strict=False):
        if server.headers:
            shown["headers"] = dict.fromkeys(server.headers, HIDDEN_VALUE)
        if server.env:
            shown["env"] = _mask_values(_mask_variables(server.env), mask)
        if server.url:
            shown["url"] = mask(strip_url_credentials(server.url))
    return document


def strip_url_credentials(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN_VALUE
    query = HIDDEN_VALUE if parts.query else ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))


def remove_leftover_run_folders(root: Path) -> None:
    """Remove folders that an interrupted server was removing."""
    for left in root.glob(".*.????????"):
        shutil.rmtree(left, onerror=_ignore_missing)


def _ignore_missing(_: object, __: str, error: tuple[type[BaseException], BaseException, Any]) -> None:
    """Ignore files that another process removed."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def _mask_values(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {name: _mask_values(each, mask) for name, each in value.items()}
    return [_mask_values(each, mask) for each in value] if isinstance(value, list) else value


def _mask_variables(variables: Mapping[str, str]) -> dict[str, str]:
    def hidden(name: str, value: str) -> bool:
        return bool(_SECRET_NAME.search(name) or _URL_WITH_CREDENTIALS.search(value))

    return {name: HIDDEN_VALUE if hidden(name, value) else value for name, value in variables.items()}


class _BlockStyleDumper(yaml.SafeDumper):
    """YAML dumper with block style for multi-line texts."""

    def represent_text(self, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    def ignore_aliases(self, data: Any) -> bool:
        return True


_BlockStyleDumper.add_representer(str, _BlockStyleDumper.represent_text)
