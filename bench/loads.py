"""Loads of gateway benchmarks, and the result table."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateways import Gateway

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
CHUNKS = 200
"""Events of a stream, as the provider sends it."""
ATTEMPTS = 3
_NUMBER = "@" * 10
"""Becomes a number that no other request has, so that the archive has something new to keep each time."""
_SYSTEM = "You are a careful engineer. Read before you write, say what you are unsure of, and keep it short. " * 4
_QUESTION = f"Question {_NUMBER}: what does the build say, and which of the files that it names were changed last? " * 3


def chat(model: str = "bench", *, stream: bool = False) -> dict[str, object]:
    """A request in OpenAI's format, about a kilobyte."""
    said = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _QUESTION}]
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    return {"model": model, "max_tokens": 1024, "messages": said, **(streaming if stream else {})}


def message(model: str = "bench", *, stream: bool = False) -> dict[str, object]:
    """The same in Anthropic's."""
    said = [{"role": "user", "content": _QUESTION}]
    streaming = {"stream": True} if stream else {}
    return {"model": model, "max_tokens": 1024, "system": _SYSTEM, "messages": said, **streaming}


class Client:
    """The compiled load client with its request counts."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self.asked: dict[str, int] = {}

    async def __call__(
        self,
        gateway: Gateway,
        path: str,
        body: Mapping[str, object],
        *,
        connections: int,
        seconds: float = 0,
        requests: int = 0,
        stagger: float = 0,
    ) -> dict[str, Any]:
        """Ask for so long, or so often, with so many at once; every answer must be whole."""
        for attempt in range(ATTEMPTS):
            try:
                result = await self._run(gateway, path, body, (connections, seconds, requests, round(stagger * 1e6)))
                break
            except RuntimeError as error:
                # The peer that breaks off an answer under load is to be compared nevertheless; we are not spared.
                if gateway.name != "litellm" or attempt == ATTEMPTS - 1:
                    raise
                print(f"! once more: {error}", flush=True)
                await settle(gateway)
        self.asked[gateway.name] = self.asked.get(gateway.name, 0) + result["answers"]
        return result

    async def _run(
        self, gateway: Gateway, path: str, body: Mapping[str, object], bounds: tuple[float, ...]
    ) -> dict[str, Any]:
        end = "" if "stream" not in body else "data: [DONE]" if path == CHAT else '"message_stop"'
        process = await asyncio.create_subprocess_exec(
            *(str(self._program), str(gateway.port), *map(str, bounds), end),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate(gateway.request(path, body))
        if process.returncode:
            raise RuntimeError(f"{gateway.name}, {path}: {errors.decode(errors='replace').strip()}")
        result: dict[str, Any] = json.loads(output)
        return result


async def settle(gateway: Gateway, patience: float = 300) -> None:
    """Wait until the gateway does nothing any more, so that what it put off is not in the next one's way."""
    quiet = 0
    async with asyncio.timeout(patience):
        while quiet < 3:
            before = gateway.cpu()
            await asyncio.sleep(0.1)
            quiet = quiet + 1 if gateway.cpu() - before < 0.01 else 0


def _readable(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3f}" if figure < 10 else f"{figure:.1f}"


@dataclass
class Table:
    """Results of several rounds by measurement and gateway, with the required bars."""

    units: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    bars: list[dict[str, object]] = field(default_factory=list)

    def add(self, what: str, who: str, figure: float, unit: str = "") -> None:
        self.units[what] = unit
        self.rounds.setdefault(what, {}).setdefault(who, []).append(figure)

    def middle(self, what: str, who: str) -> float | None:
        """The median, or nothing where it was not measured."""
        figures = self.rounds.get(what, {}).get(who)
        return statistics.median(figures) if figures else None

    def added(self, what: str, who: str, floor: str = "direct") -> float | None:
        """The median of what was added to the floor of the same round."""
        figures, floors = (self.rounds.get(what, {}).get(name) for name in (who, floor))
        if not figures or not floors:
            return None
        return statistics.median(each - least for each, least in zip(figures, floors, strict=True))

    def ratio(self, what: str, who: str, peer: str) -> float | None:
        ours, theirs = self.middle(what, who), self.middle(what, peer)
        return None if ours is None or not theirs else ours / theirs

    def judge(self, what: str, value: float | None, unit: str, bound: float, *, at_least: bool = False) -> None:
        """Hold a figure against its bar; what was not measured is not judged."""
        if value is None:
            return
        holds = value >= bound if at_least else value <= bound
        bar = f"{'>=' if at_least else '<='} {bound:g}{unit}"
        self.bars.append({"what": what, "value": value, "unit": unit, "bar": bar, "holds": holds})

    @property
    def all_hold(self) -> bool:
        return all(bar["holds"] for bar in self.bars)

    def show(self, order: tuple[str, ...], less_direct: tuple[str, ...] = ()) -> None:
        """Print medians by gateway, overheads against direct requests, and the bars."""
        names = [name for name in order if any(name in row for row in self.rounds.values())]

        def line(title: str, figures: Iterable[float | None]) -> None:
            cells = ("" if figure is None else _readable(figure) for figure in figures)
            print(f"{title:<46}" + "".join(f"{cell:>16}" for cell in cells))

        if names:
            print(f"\n{'medians':<46}" + "".join(f"{name:>16}" for name in names))
        for what, unit in self.units.items():
            line(f"{what}, {unit}", (self.middle(what, name) for name in names))
            if what in less_direct and "direct" in self.rounds[what]:
                line("  added", (None if name == "direct" else self.added(what, name) for name in names))
        if self.bars:
            print(f"\n{'bars':<62}{'figure':>14}  {'bar':<14}holds")
        for bar in self.bars:
            figure = f"{bar['value']:,.3f}{bar['unit']}"
            print(f"{bar['what']:<62}{figure:>14}  {bar['bar']:<14}{'yes' if bar['holds'] else 'NO'}")

    def as_json(self) -> str:
        figures = [
            {"what": what, "unit": self.units[what], "who": who, "median": statistics.median(values), "rounds": values}
            for what, row in self.rounds.items()
            for who, values in row.items()
        ]
        return json.dumps({"figures": figures, "bars": self.bars}, indent=2)
