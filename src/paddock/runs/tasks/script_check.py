"""Validate the script of a task. Long ones are validated in a worker process, and each only once."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from paddock.errors import ConfigError
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.llm.scripted_model.script_loader import parse_script
from paddock.runs.tasks.task_problems import task_problems_from_error

LONG_SCRIPT_CHARACTERS = 32 * 2**10
"""Characters of a script that block other clients while it is parsed."""
_MAX_REMEMBERED = 100
_remembered: OrderedDict[bytes, Sequence[str]] = OrderedDict()
"""Problems of scripts by digest."""


def find_script_problems(text: str) -> Sequence[str]:
    """Return what is wrong with a script, with the lines."""
    known = _remembered.get(_digest(text))
    return _remember(text, _parse_problems(text)) if known is None else known


async def validate_long_script(text: object, workers: OffloadWorkerPool) -> None:
    """Have a worker process find the problems of a script, if it is long. Raises `WorkersBusy`."""
    if isinstance(text, str) and len(text) > LONG_SCRIPT_CHARACTERS and _digest(text) not in _remembered:
        _remember(text, json.loads(b"".join(await workers.call(script_problems_as_json, text))))


def script_problems_as_json(text: str) -> bytes:
    """Return the problems of a script as JSON."""
    return json.dumps(_parse_problems(text)).encode()


def _parse_problems(text: str) -> Sequence[str]:
    try:
        parse_script(text, Path("llm.script"))
    except ConfigError as error:
        return [f"line {each.line or 1}: {each.message}" for each in task_problems_from_error(error, "llm.script")]
    return ()


def _remember(text: str, problems: Sequence[str]) -> Sequence[str]:
    _remembered[_digest(text)] = problems
    while len(_remembered) > _MAX_REMEMBERED:
        _remembered.popitem(last=False)
    return problems


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
