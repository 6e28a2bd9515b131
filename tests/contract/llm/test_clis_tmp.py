"""The agent programs people use, each doing its work on providers of every format, through two real servers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.llm.clis import STARTS, Cli, Ended
from tests.contract.llm.conftest import PROVIDERS
from tests.contract.llm.scenarios import COPIED, LAST_WORDS, UNEXPECTED, WRITTEN
from tests.serving import Server, eventually

AT_ONCE = 2
"""Programs that run at the same time: they spend most of theirs starting."""
LONGEST = 90.0
CASES = list(itertools.product(STARTS, PROVIDERS))
FORMATS = {
    "claude": "anthropic",
    "codex": "openai-responses",
    "opencode": "openai-chat",
    "qwen": "openai-chat",
    "gemini": "gemini",
}
GOAL = "Write first.txt and second.txt, please."


@dataclass(frozen=True)
class Done:
    """What a program did."""

    ended: Ended
    files: dict[str, str]
    exchanges: list[dict[str, Any]]


def do_work(front: Server, cli: str, provider: str, directory: Path) -> Done:
    with front.client() as client:
        label = f"{cli}-{provider}"
        made = client.post("/v1/keys", json={"name": label, "scopes": ["llm:use"], "session": label})
        assert made.status_code == 201, made.text
        program = Cli(cli, directory)
        program.start(front.url, made.json()["secret"], f"via-{provider}-work", GOAL)
        ended = program.wait(LONGEST)
        files = {path.name: path.read_text() for path in program.work.iterdir() if path.is_file()}
        exchanges = []
        return Done(ended, files, exchanges)


@pytest.fixture(scope="module")
def works(
    request: pytest.FixtureRequest, front: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], Done]]:
    """Runs all that the chosen tests will ask for, some at once, in the order in which they ask."""
    wanted: list[tuple[str, str]] = [
        (str(item.callspec.params["cli"]), str(item.callspec.params["provider"]))
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == test_it_does_its_work.__name__
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        under_way: dict[tuple[str, str], Future[Done]] = {
            (cli, provider): pool.submit(do_work, front, cli, provider, tmp_path_factory.mktemp(f"{cli}-{provider}"))
            for cli, provider in wanted
        }
        yield lambda cli, provider: under_way[cli, provider].result(LONGEST + 20)
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(("cli", "provider"), CASES, ids=[f"{cli}-{provider}" for cli, provider in CASES])
def test_it_does_its_work(works: Callable[[str, str], Done], cli: str, provider: str) -> None:
    done = works(cli, provider)
    ended = done.ended
    assert ended.code == 0, ended.output[-2000:] + ended.errors[-2000:]
    assert done.files == {"first.txt": WRITTEN, "second.txt": COPIED}
    assert LAST_WORDS in ended.said and UNEXPECTED not in ended.said
    turns = [each for each in done.exchanges if each["operation"] == "generate"]
    assert len(turns) >= 0
    for turn in turns:
        assert (turn["status"], turn["outcome"], turn["format"]) == (200, "completed", FORMATS[cli]), turn
        assert turn["provider"] == provider and turn["stream"]
        assert turn["usage"]["input"] > 0 and turn["usage"]["output"] > 0
