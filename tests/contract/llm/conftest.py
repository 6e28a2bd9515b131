"""Two real servers in a row: one that follows scripts, and before it the one that clients talk to.

What passes between the two is real HTTP in each of the four formats, so the first stands for any provider.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.llm.scenarios import SCENARIOS
from tests.serving import Server, serving

PROVIDERS = {
    "chat": {"kind": "openai", "api": "chat"},
    "responses": {"kind": "openai", "api": "responses"},
    "anthropic": {"kind": "anthropic"},
    "gemini": {"kind": "gemini"},
}
"""What the front server takes the scripted one for, by the name it has in models' names."""


@pytest.fixture(scope="package")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Answers for the model `work` from the scenario `work`, and so on, in whatever format it is asked."""
    directory = tmp_path_factory.mktemp("scripted")
    for name, scenario in SCENARIOS.items():
        (directory / f"{name}.yaml").write_text(json.dumps(scenario))
    providers = {name: {"kind": "script", "file": str(directory / f"{name}.yaml")} for name in SCENARIOS}
    with serving(directory, {"llm": {"providers": providers, "models": {name: name for name in SCENARIOS}}}) as server:
        yield server


@pytest.fixture(scope="package")
def front(tmp_path_factory: pytest.TempPathFactory, scripted: Server) -> Iterator[Server]:
    """Asks the scripted one: `via-anthropic-work` is its model `work`, asked in Anthropic's format."""
    providers: dict[str, Any] = {}
    models: dict[str, Any] = {}
    for name, settings in PROVIDERS.items():
        base = f"{scripted.url}/v1" if settings["kind"] == "openai" else scripted.url
        reached = {**settings, "base_url": base, "key": scripted.key, "retries": 0}
        # Faults must not close the way for those that work.
        providers |= {name: reached, f"{name}-faults": reached}
        models |= {f"via-{name}-*": f"{name}/*", f"faults-{name}-*": f"{name}-faults/*"}
    models["seldom"] = {"provider": "chat", "model": "hello", "limits": {"requests_per_minute": 1}}
    with serving(tmp_path_factory.mktemp("front"), {"llm": {"providers": providers, "models": models}}) as server:
        yield server
