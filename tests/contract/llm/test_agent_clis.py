"""Agent programs complete a task with providers of every format, through two real servers."""

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

from tests.contract.llm.agent_clis import LAUNCHERS, AgentProgram, ProgramResult
from tests.contract.llm.cli_scripts import FINAL_ANSWER, FIRST_FILE, SECOND_FILE, UNEXPECTED_ANSWER
from tests.contract.llm.conftest import PROVIDERS
from tests.support.server import Server, eventually

CONCURRENT_PROGRAMS = 2
"""Number of programs that run at the same time; most of their time is start-up."""
TIME_LIMIT = 90.0
CASES = list(itertools.product(LAUNCHERS, PROVIDERS))
FORMATS = {
    "claude": "anthropic",
    "codex": "openai-responses",
    "opencode": "openai-chat",
    "qwen": "openai-chat",
    "gemini": "gemini",
}
TURNS = 4
"""Number of answers of the script `work`."""
MAX_REQUESTS = 12
"""Maximum number of requests of a program that meets a fault; a retry loop makes hundreds."""
FAULT_WATCH_SECONDS = 6.0
"""Seconds for which programs are watched after each has met the fault."""


@dataclass(frozen=True)
class WorkResult:
    """Result, files and exchanges of a program."""

    ended: ProgramResult
    files: dict[str, str]
    exchanges: list[dict[str, Any]]
    conversation: dict[str, Any]
    """The conversation that the archive derives from the exchanges."""


def key_for(client: httpx.Client, session: str, **more: Any) -> str:
    made = client.post("/v1/keys", json={"name": session, "scopes": ["llm:use"], "session": session, **more})
    assert made.status_code == 201, made.text
    secret: str = made.json()["secret"]
    return secret


def list_exchanges(client: httpx.Client, session: str) -> list[dict[str, Any]]:
    """Return the archived exchanges of a program."""
    items: list[dict[str, Any]] = client.get("/v1/exchanges", params={"session": session}).json()["items"]
    return items


def do_work(front: Server, cli: str, provider: str, directory: Path) -> WorkResult:
    session = f"{cli}-{provider}"
    with front.client() as client:
        program = AgentProgram(cli, directory)
        key = key_for(client, session)
        program.start(front.url, key, f"via-{provider}-work", "Write first.txt and second.txt, please.")
        ended = program.wait(TIME_LIMIT)
        files = {path.name: path.read_text() for path in program.work.iterdir() if path.is_file()}
        if ended.code != 0:
            return WorkResult(ended, files, [], {})
        eventually(lambda: len(list_exchanges(client, session)) >= TURNS)
        exchanges = list_exchanges(client, session)
        conversation = client.get(f"/v1/exchanges/{exchanges[0]['id']}/conversation").json()
        return WorkResult(ended, files, exchanges, conversation)


@pytest.fixture(scope="module")
def work_results(
    request: pytest.FixtureRequest, front: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], WorkResult]]:
    """Start all programs that the selected tests need, a few at a time, in test order."""
    wanted: list[tuple[str, str]] = [
        (str(item.callspec.params["cli"]), str(item.callspec.params["provider"]))
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == test_agent_completes_its_task.__name__
    ]
    with ThreadPoolExecutor(CONCURRENT_PROGRAMS) as pool:
        under_way: dict[tuple[str, str], Future[WorkResult]] = {
            (cli, provider): pool.submit(do_work, front, cli, provider, tmp_path_factory.mktemp(f"{cli}-{provider}"))
            for cli, provider in wanted
        }
        yield lambda cli, provider: under_way[cli, provider].result(TIME_LIMIT + 20)
        pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize(("cli", "provider"), CASES, ids=[f"{cli}-{provider}" for cli, provider in CASES])
def test_agent_completes_its_task(work_results: Callable[[str, str], WorkResult], cli: str, provider: str) -> None:
    done = work_results(cli, provider)
    ended = done.ended
    assert ended.code == 0, ended.output[-2000:] + ended.errors[-2000:]
    assert done.files == {"first.txt": FIRST_FILE, "second.txt": SECOND_FILE}
    assert FINAL_ANSWER in ended.model_text and UNEXPECTED_ANSWER not in ended.model_text
    assert len(done.exchanges) >= TURNS
    for each in done.exchanges:
        assert (each["status"], each["outcome"], each["operation"]) == (200, "ok", "generate"), each
        assert (each["format"], each["provider"], each["stream"]) == (FORMATS[cli], provider, True)
        assert each["usage"]["input"] > 0 and each["usage"]["output"] > 0 and not each["estimated"]
    assert done.conversation["kind"] == "main"
    assert len(done.conversation["exchanges"]) == TURNS
    assert done.conversation["messages"][-1]["parts"] == [{"type": "text", "text": FINAL_ANSWER}]


@dataclass(frozen=True)
class FaultResult:
    """Results and exchanges of programs that met a fault."""

    ended: dict[str, ProgramResult]
    exchanges: dict[str, list[dict[str, Any]]]

    def statuses(self, cli: str) -> set[int]:
        return {each["status"] for each in self.exchanges[cli]}


def run_with_fault(front: Server, directory: Path, fault: str, model: str, patience: float, **key: Any) -> FaultResult:
    """Start all programs at once and stop remaining ones some time after the fault."""
    sessions = {cli: f"{fault}-{cli}" for cli in LAUNCHERS}
    programs = {cli: AgentProgram(cli, directory / cli) for cli in LAUNCHERS}
    with front.client() as client:
        try:
            for cli, program in programs.items():
                program.start(front.url, key_for(client, sessions[cli], **key), model, "Write something, please.")
            for session in sessions.values():
                eventually(lambda session=session: list_exchanges(client, session), timeout=60)  # type: ignore[misc]
            deadline = time.monotonic() + patience
            ended = {cli: program.wait(max(0.0, deadline - time.monotonic())) for cli, program in programs.items()}
            return FaultResult(ended, {cli: list_exchanges(client, session) for cli, session in sessions.items()})
        finally:
            for program in programs.values():
                program.stop()


@pytest.mark.slow
def test_agent_ends_with_error_for_unknown_model(front: Server, tmp_path: Path) -> None:
    trouble = run_with_fault(front, tmp_path, "unknown", "nobody-knows-it", patience=40)
    for cli, ended in trouble.ended.items():
        assert ended.code is not None, f"{cli} did not end"
        assert trouble.statuses(cli) == {404}
        assert len(trouble.exchanges[cli]) <= 2, cli


@pytest.mark.slow
def test_agent_ends_with_error_for_exhausted_budget(front: Server, tmp_path: Path) -> None:
    trouble = run_with_fault(front, tmp_path, "budget", "via-gemini-work", patience=40, budget={"requests": 1})
    for cli, ended in trouble.ended.items():
        assert ended.code is not None, f"{cli} did not end"
        assert (tmp_path / cli / "work" / "first.txt").read_text() == FIRST_FILE, cli
        assert trouble.statuses(cli) == {200, 402}
        assert len(trouble.exchanges[cli]) <= MAX_REQUESTS, cli


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["busy", "cut"])
def test_transient_faults_cause_no_retry_loops(front: Server, tmp_path: Path, fault: str) -> None:
    trouble = run_with_fault(front, tmp_path, fault, f"faults-anthropic-{fault}", FAULT_WATCH_SECONDS)
    for cli, exchanges in trouble.exchanges.items():
        assert len(exchanges) <= MAX_REQUESTS, cli
        *earlier, last = [each["outcome"] for each in sorted(exchanges, key=itemgetter("number"))]
        assert set(earlier) <= {"failed", "cut"}, exchanges
        # A program that is stopped may have a request in progress.
        assert last in ("failed", "cut", "client_gone"), exchanges
        assert UNEXPECTED_ANSWER not in trouble.ended[cli].model_text
    if fault == "busy":
        for cli, exchanges in trouble.exchanges.items():
            moments = sorted(datetime.fromisoformat(each["at"]).timestamp() for each in exchanges)
            pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
            # gemini-cli uses its own backoff; the others wait for the requested seven seconds.
            least = 3.0 if cli == "gemini" else 6.5
            assert all(pause > least for pause in pauses), f"{cli} waited {pauses}"
