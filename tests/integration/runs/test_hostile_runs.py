"""Hostile sandboxes, task authors and models: their texts are shown safely and cost little."""

from __future__ import annotations

import asyncio
import os
import pty
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from paddock.app.server import PaddockServer
from paddock.model.events import EventType
from paddock.model.runs import EndedBy, RunState
from paddock.runs.output.pattern_search import MAX_LINE_CHARACTERS, PatternSearch
from tests.support.server import PADDOCK_COMMAND, run_server

from .run_service_support import TENANT, assert_nothing_left, events_of, open_server, result_of, task, wait_until_ended

pytestmark = pytest.mark.anyio
ESCAPES = r"\033]0;title\007\033[2J\302\233"


@pytest.fixture
async def paddock(tmp_path: Path) -> AsyncIterator[PaddockServer]:
    async with open_server(tmp_path / "data") as running:
        yield running
        await assert_nothing_left(running)


async def test_reasons_contain_no_terminal_control_characters(paddock: PaddockServer) -> None:
    failed = await result_of(paddock, task(f"printf '{ESCAPES}gone wrong'; exit 3"))
    assert failed.reason.isprintable() and "gone wrong" in failed.reason
    missing = await result_of(paddock, task(["\x1b[2J/no-such-program"]))
    assert missing.ended_by is EndedBy.SETUP and missing.reason.isprintable()
    assert "no-such-program" in missing.reason


FINAL_CHARACTERS = "zyxwvutsrqponmlkjihgfedcb"
EXPENSIVE_PATTERN = "|".join("." * length + FINAL_CHARACTERS[length % len(FINAL_CHARACTERS)] for length in range(1, 50))


@pytest.mark.parametrize(
    "pattern", [EXPENSIVE_PATTERN, "." * 1900 + "z", "[^z]" * 480 + "z"], ids=["alternatives", "dots", "sets"]
)
async def test_slow_pattern_does_not_block_the_event_loop(pattern: str) -> None:
    search = PatternSearch(pattern)
    with pytest.raises(TimeoutError):  # The loop was free to notice the time.
        async with asyncio.timeout(0.2):
            await search.find_first_match(["a" * MAX_LINE_CHARACTERS] * 200)


@pytest.mark.parametrize("pattern", ["done", "^done$", r"^\[done\]", "d.ne|over"])
async def test_patterns_match_their_text(pattern: str) -> None:
    search = PatternSearch(pattern)
    try:
        assert await search.find_first_match(["begun", "[done]" if "[" in pattern else "done"]) is not None
        assert await search.find_first_match(["begun", "gone"]) is None
    finally:
        await search.close()


@pytest.mark.parametrize("host", ["2852039166", "0xa9fea9fe", "169.254.43518", "0251.0376.0251.0376"])
async def test_cloud_metadata_address_is_refused_in_every_notation(paddock: PaddockServer, host: str) -> None:
    result = await result_of(paddock, task(mcp=[{"name": "cloud", "url": f"http://{host}/latest"}]))
    assert result.state is RunState.FAILED and "may not have the address" in result.reason


async def test_invalid_requests_to_tools_are_not_logged_as_errors(
    paddock: PaddockServer, caplog: pytest.LogCaptureFixture
) -> None:
    garbage = """python3 - <<'END'
import socket
for _ in range(20):
    with socket.create_connection(("127.0.0.1", 8422), 5) as door:
        door.sendall(b"GET * HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        print(door.recv(12))
END
"""
    work = task(garbage, mcp=[{"name": "tools", "url": "https://tools.example.org/mcp"}])
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
    assert run.state is RunState.SUCCEEDED, run.result
    assert (paddock.runs.dependencies.run_folder(run.id).logs / "agent.out").read_text().count(" 400") == 20
    assert [record for record in caplog.records if record.exc_info] == []


async def test_secret_like_variables_are_not_stored_in_the_run_folder(paddock: PaddockServer) -> None:
    env = {"DATABASE_URL": "postgres://ann:hush@db/x", "GH_PAT": "hush", "MYSQL_PWD": "hush", "SENTRY_DSN": "hush"}
    work = task(env={**env, "PATTERN": "shown", "DOCS": "https://example.org/@ann"})
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
    folder = paddock.runs.dependencies.run_folder(run.id)
    stored = "".join(path.read_text() for path in folder.path.rglob("*") if path.is_file())
    assert "hush" not in stored
    assert "shown" in folder.task.read_text() and "https://example.org/@ann" in folder.task.read_text()


async def test_swapping_directories_for_links_delivers_no_host_files(paddock: PaddockServer) -> None:
    swapping = """
mkdir d; echo mine > d/passwd; ln -s /etc link
python3 -c '
import os
while True:
    os.rename("d", "kept"); os.rename("link", "d"); os.rename("d", "link"); os.rename("kept", "d")
' >/dev/null 2>&1 &
echo begun
sleep 60
"""
    deliverables = [{"path": "d/**", "required": False}, {"path": "d/passwd", "required": False}]
    work = task(swapping, end={"output": "begun"}, deliverables=deliverables)
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
    assert run.state is RunState.SUCCEEDED and run.result is not None
    folder = paddock.runs.dependencies.run_folder(run.id)
    assert all(path.is_dir() or (path.is_file() and not path.is_symlink()) for path in folder.path.rglob("*"))
    # A race may give files of the sandbox's own /etc, which it may copy anyway; never the server's.
    assert all(each.path.startswith("d/") for each in run.result.deliverables)
    got = folder.deliverables / "d/passwd"
    assert not got.exists() or got.read_text() != Path("/etc/passwd").read_text()


async def test_inaccessible_workspace_fails_the_run(paddock: PaddockServer) -> None:
    result = await result_of(paddock, task("echo x > f; chmod 000 f /workspace", deliverables="f"))
    assert result.state is RunState.FAILED and "f may not be read" in result.reason
    result = await result_of(paddock, task("rm -rf /workspace; ln -s /etc /workspace; true", deliverables="passwd"))
    assert result.state is RunState.FAILED and result.deliverables == ()
    sparse = await result_of(paddock, task("truncate -s 5G huge", deliverables="huge"))
    assert sparse.state is RunState.FAILED and "max_size" in sparse.reason


EXCESSIVE_FIELDS = [
    {"resources": {"cpu": 1e300}},
    {"resources": {"memory": 10**30}},
    {"resources": {"disk": 10**30}},
    {"resources": {"processes": 10**12}},
    {"verify": [{"run": "true", "weight": 1e308}]},
    {"llm": {"requests": 2**70}},
    {"llm": {"tokens": 2**70}},
    {"concurrency": 2**70},
]
LONE_SURROGATE = "\ud800"
"""Half of a character, which JSON can write and UTF-8 cannot."""


@pytest.mark.parametrize("fields", EXCESSIVE_FIELDS, ids=str)
def test_excessive_numbers_are_refused_before_a_run_is_created(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="less than or equal"):
        task(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"A": LONE_SURROGATE}},
        {"end": {"output": LONE_SURROGATE}},
        {"entrypoint": ["echo", LONE_SURROGATE]},
        {"inputs": [{"content": LONE_SURROGATE, "target": "x"}]},
        {"deliverables": [LONE_SURROGATE]},
        {"mcp": [{"name": "x", "command": ["x", LONE_SURROGATE]}]},
        {"llm": {"script": LONE_SURROGATE}},
        {"image": LONE_SURROGATE},
        {"mcp": [{"name": "x", "url": "http://x/", "headers": {LONE_SURROGATE: "x"}}]},
    ],
    ids=ascii,
)
def test_texts_with_lone_surrogates_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="contains characters that cannot be passed to a program"):
        task(**fields)


async def test_background_processes_end_with_the_run(paddock: PaddockServer) -> None:
    script = "(trap '' TERM HUP INT; setsid sh -c 'while :; do echo again >> f; sleep 0.05; done' &); sleep 0.2"
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, task(script, deliverables="f")))
    assert run.state is RunState.SUCCEEDED and run.result is not None
    events = [event for event in await events_of(paddock, run) if event.type is EventType.RUN_DELIVERED]
    assert [event.data["note"] for event in events] == [""], "nothing wrote to it any more"


def test_matrix_of_a_large_task_is_refused(tmp_path: Path) -> None:
    with run_server(tmp_path) as server, server.client() as client:
        matrix = {"models": [f"m{number}" for number in range(100)]}
        document = {"name": "large", "goal": "x" * 2**20, "entrypoint": "true", "matrix": matrix}
        answer = client.post("/v1/runs", json={"task": document})
        assert answer.status_code == 413 and "shorten its goal" in answer.json()["message"]
        assert client.get("/v1/runs").json()["pagination"]["totalItems"] == 0


def test_closing_the_terminal_cancels_the_run_and_collects_results(tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    file.write_text(
        "{name: work, goal: g, image: host, entrypoint: 'echo x > f; echo begun; sleep 60', deliverables: f}"
    )
    with run_server(tmp_path, {"runs": {"grace": 1}}) as server, server.client() as client:
        process, terminal = pty.fork()
        if process == 0:
            os.execv(PADDOCK_COMMAND, [str(PADDOCK_COMMAND), "run", str(file), "--data", str(server.data)])
        output = b""
        while b"begun" not in output:
            output += os.read(terminal, 4096)
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
        (run,) = client.get("/v1/runs").json()["items"]
        assert run["state"] == "cancelled"
        assert client.get(f"/v1/runs/{run['id']}/deliverables/f").text == "x\n"
