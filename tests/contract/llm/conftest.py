"""Two real servers in a row: a scripted one, and in front of it the one that clients use.

They communicate over HTTP in each of the four formats, so the scripted server stands for any provider.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.llm.cli_scripts import SCRIPTS
from tests.support.server import Server, run_server

PROVIDERS = {
    "chat": {"kind": "openai", "api": "chat"},
    "responses": {"kind": "openai", "api": "responses"},
    "anthropic": {"kind": "anthropic"},
    "gemini": {"kind": "gemini"},
}
"""Provider settings under which the front server uses the scripted one, by name."""


@pytest.fixture(scope="package")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Server with one scripted model per script, such as `work`, in every format."""
    directory = tmp_path_factory.mktemp("scripted")
    for name, script in SCRIPTS.items():
        (directory / f"{name}.yaml").write_text(json.dumps(script))
    providers = {name: {"kind": "script", "file": str(directory / f"{name}.yaml")} for name in SCRIPTS}
    with run_server(directory, {"llm": {"providers": providers, "models": {name: name for name in SCRIPTS}}}) as server:
        yield server


@pytest.fixture(scope="package")
def front(tmp_path_factory: pytest.TempPathFactory, scripted: Server) -> Iterator[Server]:
    """Server in front of the scripted one: `via-anthropic-work` is its model `work` in Anthropic's format."""
    providers: dict[str, Any] = {}
    models: dict[str, Any] = {}
    for name, settings in PROVIDERS.items():
        base = f"{scripted.url}/v1" if settings["kind"] == "openai" else scripted.url
        reached = {**settings, "base_url": base, "key": scripted.key, "retries": 0}
        # Separate providers for faults, so that their circuit breakers do not affect the other tests.
        providers |= {name: reached, f"{name}-faults": reached}
        models |= {f"via-{name}-*": f"{name}/*", f"faults-{name}-*": f"{name}-faults/*"}
    models["seldom"] = {"provider": "chat", "model": "hello", "limits": {"requests_per_minute": 1}}
    with run_server(tmp_path_factory.mktemp("front"), {"llm": {"providers": providers, "models": models}}) as server:
        yield server
