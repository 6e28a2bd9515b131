"""The agent programs people use, each doing its work on providers of every format, through two real servers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import httpx
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
TURNS = 4
"""Answers of the scenario `work`."""
MOST = 12
"""Requests of a program in trouble until it is stopped; one that loops makes hundreds."""
PATIENCE = 6.0
"""Seconds for which programs in trouble are watched after each has met it."""


@dataclass(frozen=True)
class Done:
    """What a program did."""

    ended: Ended
    files: dict[str, str]
    exchanges: list[dict[str, Any]]
    conversation: dict[str, Any]
    """What the archive makes of them."""


def key_for(client: httpx.Client, session: str, **more: Any) -> str:
    made = client.post("/v1/keys", json={"name": session, "scopes": ["llm:use"], "session": session, **more})
    assert made.status_code == 201, made.text
    secret: str = made.json()["secret"]
    return secret


def asked(client: httpx.Client, session: str) -> list[dict[str, Any]]:
    """The exchanges of a program, as far as they are archived."""
    items: list[dict[str, Any]] = client.get("/v1/exchanges", params={"session": session}).json()["items"]
    return items


def do_work(front: Server, cli: str, provider: str, directory: Path) -> Done:
    session = f"{cli}-{provider}"
    with front.client() as client:
        program = Cli(cli, directory)
        key = key_for(client, session)
        program.start(front.url, key, f"via-{provider}-work", "Write first.txt and second.txt, please.")
        ended = program.wait(LONGEST)
        files = {path.name: path.read_text() for path in program.work.iterdir() if path.is_file()}
        if ended.code != 0:
            return Done(ended, files, [], {})
        eventually(lambda: len(asked(client, session)) >= TURNS)
        exchanges = asked(client, session)
        conversation = client.get(f"/v1/exchanges/{exchanges[0]['id']}/conversation").json()
        return Done(ended, files, exchanges, conversation)


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


@pytest.mark.slow
@pytest.mark.parametrize(("cli", "provider"), CASES, ids=[f"{cli}-{provider}" for cli, provider in CASES])
def test_it_does_its_work(works: Callable[[str, str], Done], cli: str, provider: str) -> None:
    done = works(cli, provider)
    ended = done.ended
    assert ended.code == 0, ended.output[-2000:] + ended.errors[-2000:]
    assert done.files == {"first.txt": WRITTEN, "second.txt": COPIED}
    assert LAST_WORDS in ended.said and UNEXPECTED not in ended.said
    assert len(done.exchanges) >= TURNS
    for each in done.exchanges:
        assert (each["status"], each["outcome"], each["operation"]) == (200, "ok", "generate"), each
        assert (each["format"], each["provider"], each["stream"]) == (FORMATS[cli], provider, True)
        assert each["usage"]["input"] > 0 and each["usage"]["output"] > 0 and not each["estimated"]
    assert done.conversation["kind"] == "main"
    assert len(done.conversation["exchanges"]) == TURNS
    assert done.conversation["messages"][-1]["parts"] == [{"type": "text", "text": LAST_WORDS}]


@dataclass(frozen=True)
class Trouble:
    """What becomes of programs that meet something that goes wrong."""

    ended: dict[str, Ended]
    exchanges: dict[str, list[dict[str, Any]]]

    def statuses(self, cli: str) -> set[int]:
        return {each["status"] for each in self.exchanges[cli]}


def troubled(front: Server, directory: Path, fault: str, model: str, patience: float, **key: Any) -> Trouble:
    """Start all programs at once and stop those that have not ended a while after each has met the trouble."""
    sessions = {cli: f"{fault}-{cli}" for cli in STARTS}
    programs = {cli: Cli(cli, directory / cli) for cli in STARTS}
    with front.client() as client:
        try:
            for cli, program in programs.items():
                program.start(front.url, key_for(client, sessions[cli], **key), model, "Write something, please.")
            for session in sessions.values():
                eventually(lambda session=session: asked(client, session), timeout=60)  # type: ignore[misc]
            deadline = time.monotonic() + patience
            ended = {cli: program.wait(max(0.0, deadline - time.monotonic())) for cli, program in programs.items()}
            return Trouble(ended, {cli: asked(client, session) for cli, session in sessions.items()})
        finally:
            for program in programs.values():
                program.stop()


@pytest.mark.slow
def test_a_model_that_is_not_there_ends_them(front: Server, tmp_path: Path) -> None:
    trouble = troubled(front, tmp_path, "unknown", "nobody-knows-it", patience=40)
    for cli, ended in trouble.ended.items():
        assert ended.code is not None, f"{cli} did not end"
        assert trouble.statuses(cli) == {404}
        assert len(trouble.exchanges[cli]) <= 2, cli


@pytest.mark.slow
def test_a_budget_that_is_spent_ends_them(front: Server, tmp_path: Path) -> None:
    trouble = troubled(front, tmp_path, "budget", "via-gemini-work", patience=40, budget={"requests": 1})
    for cli, ended in trouble.ended.items():
        assert ended.code is not None, f"{cli} did not end"
        assert (tmp_path / cli / "work" / "first.txt").read_text() == WRITTEN, cli
        assert trouble.statuses(cli) == {200, 402}
        assert len(trouble.exchanges[cli]) <= MOST, cli


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["busy", "cut"])
def test_passing_trouble_makes_none_of_them_loop(front: Server, tmp_path: Path, fault: str) -> None:
    trouble = troubled(front, tmp_path, fault, f"faults-anthropic-{fault}", PATIENCE)
    for cli, exchanges in trouble.exchanges.items():
        assert len(exchanges) <= MOST, cli
        *earlier, last = [each["outcome"] for each in sorted(exchanges, key=itemgetter("number"))]
        assert set(earlier) <= {"failed", "cut"}, exchanges
        # Who is ended for want of patience may have been asking just then.
        assert last in ("failed", "cut", "client_gone"), exchanges
        assert UNEXPECTED not in trouble.ended[cli].said
    if fault == "busy":
        for cli, exchanges in trouble.exchanges.items():
            moments = sorted(datetime.fromisoformat(each["at"]).timestamp() for each in exchanges)
            pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
            # gemini-cli waits by a rule of its own; the others as long as they are told, which is seven seconds.
            least = 3.0 if cli == "gemini" else 6.5
            assert all(pause > least for pause in pauses), f"{cli} waited {pauses}"
