"""Loading engines from entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from unittest.mock import sentinel

import pytest

from paddock.agents.engines.registry import ENTRY_POINT_GROUP, EngineDependencies, EngineRegistry
from paddock.config.schema import Config
from paddock.errors import ConfigError

ABSENT: Any = sentinel.not_needed
DEPENDENCIES = EngineDependencies(Config(), ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT)


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("incomplete_engine", "import no_such_package", "No module named 'no_such_package'"),
        ("warning_engine", "raise FutureWarning('the package is old')", "FutureWarning: the package is old"),
        ("failing_engine", "def PlainEngine(dependencies): raise KeyError('model')", "KeyError: 'model'"),
        ("empty_engine", "", "AttributeError"),
    ],
)
def test_engine_that_fails_to_load_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, source: str, reason: str
) -> None:
    (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = EntryPoint("plain", f"{module}:PlainEngine", ENTRY_POINT_GROUP)
    with pytest.raises(ConfigError, match="the engine plain cannot be loaded") as raised:
        EngineRegistry(DEPENDENCIES, {"plain": entry}).get("plain")
    assert reason in raised.value.message
