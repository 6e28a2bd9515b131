"""Scripts that answer in the place of a model, each for one run and for nobody else.

A run that has no model asks for `script-RUN`, where RUN is its id. Scripts are kept in memory only: whoever looks after
runs adds them again after a restart, before sandboxes ask.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.config.llm import ModelConfig, ProviderConfig
from paddock.errors import ConfigError, InvalidInput
from paddock.llm.circuits import Circuit
from paddock.llm.exchange import Caller
from paddock.llm.providers.base import Answered, Ask, Provider

if TYPE_CHECKING:
    from paddock.llm.providers.script import ScriptProvider
    from paddock.llm.script.scenario import Scenario

PREFIX = "script-"
SCRIPT = "script of a run"
"""What they are called as providers, and what all are counted as; a name each would fill every list of models."""


def script_name(run_id: str) -> str:
    """The model that a run asks for to be answered by its script."""
    return PREFIX + run_id


def check_script(text: str) -> None:
    """Raise `InvalidInput` for a text that is no scenario, saying where and why."""
    _read(text)


class RunScript(Provider):
    """Answers one run. Its scenario is read when it is first asked, because that can take long."""

    kind = "script"

    def __init__(self, text: str) -> None:
        from paddock.llm.formats.registry import FORMATS

        super().__init__(SCRIPT, tuple(FORMATS))
        self.text = text
        self._reading: asyncio.Future[ScriptProvider] | None = None

    async def send(self, ask: Ask) -> Answered:
        if self._reading is None:
            self._reading = asyncio.ensure_future(asyncio.to_thread(self._made))
        # Whoever leaves meanwhile must not take it away from those who wait for the same.
        return await (await asyncio.shield(self._reading)).send(ask)

    def _made(self) -> ScriptProvider:
        from paddock.llm.providers.script import ScriptProvider

        return ScriptProvider(SCRIPT, _read(self.text))


@dataclass(frozen=True, slots=True)
class Script:
    """What answers for one run."""

    tenant: str | None
    provider: RunScript
    circuit: Circuit
    provider_settings: ProviderConfig
    settings: ModelConfig


class Scripted:
    """The scripts of all runs under way."""

    def __init__(self) -> None:
        self._scripts: dict[str, Script] = {}

    def add(self, run_id: str, text: str, tenant: str | None = None) -> None:
        """Have a run answered by a scenario from now on. Cheap, and without effect if it is there already.

        With a tenant, a key of another that claims to be the run's gets no answer. The text is not looked at here:
        use `check_script` before.
        """
        known = self._scripts.get(run_id)
        if known is None or known.tenant != tenant or known.provider.text != text:
            settings = ProviderConfig(kind="script", file=Path(f"{script_name(run_id)}.yaml"))
            model = ModelConfig(provider=SCRIPT)
            self._scripts[run_id] = Script(tenant, RunScript(text), Circuit(), settings, model)

    def remove(self, run_id: str) -> None:
        """Forget the script of a run; idempotent."""
        self._scripts.pop(run_id, None)

    def find(self, asked: str, caller: Caller | None) -> Script | None:
        """What answers for a model of this name, if whoever asks is the run that it is for."""
        if caller is None or caller.run is None or asked != PREFIX + caller.run:
            return None
        script = self._scripts.get(caller.run)
        return script if script is not None and script.tenant in (None, caller.tenant) else None

    def awaits(self, asked: str, caller: Caller | None) -> bool:
        """Whether a run asks for its own script and that is not there, perhaps because this server has just started."""
        if caller is None or caller.run is None or asked != PREFIX + caller.run:
            return False
        return caller.run not in self._scripts


def _read(text: str) -> Scenario:
    from paddock.llm.script.load import parse_scenario

    try:
        return parse_scenario(text, Path("script"))
    except ConfigError as error:
        raise InvalidInput(error.message) from None
