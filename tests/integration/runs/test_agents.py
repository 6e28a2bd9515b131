"""The sample tasks by the real agents, in their images, in sandboxes that reach only the proxy; and with it in trouble.

The first time, the images are built, which takes some minutes and needs a network. They are kept, in `TEST_IMAGES` or
`~/.paddock/images`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fake_provider import FakeProvider, json_response, run_fake_provider
from tests.support.server import Server, run_server

from .agent_images import OUR_KEY, ROOT, Called, Done, paddock_run, share_images

pytestmark = pytest.mark.timeout(1500)
AGENTS = {
    "hello": "claude-code",
    "hello-codex": "codex",
    "hello-gemini-cli": "gemini-cli",
    "hello-opencode": "opencode",
    "hello-qwen-agent": "qwen-agent",
    "hello-qwen-code": "qwen-code",
}
OTHERS = ("fix-bug", "data-report", "hello-script")
PROVIDER_KEY = "sk-that-no-box-ever-sees"
REFUSAL = "provider refusing refused the key it is configured with (status 401)"
REPORT = """\
# Visitors

April had the most visitors, 3310; there were 9945 in all.

| month | visitors | change |
|---|---:|---:|
| January | 1820 |  |
| February | 2140 | +17.6 % |
| March | 2675 | +25.0 % |
| April | 3310 | +23.7 % |
"""


@pytest.fixture(scope="module")
def refusing() -> Iterator[FakeProvider]:
    """A provider that refuses its key for good."""
    with run_fake_provider() as provider:
        provider.always_respond(
            json_response({"error": {"message": "no such key", "type": "authentication_error"}}, status=401)
        )
        yield provider


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, refusing: FakeProvider) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("agents")
    share_images(directory / "data", [f"agent-{agent}" for agent in AGENTS.values()])
    providers = {
        "refusing": {"kind": "openai", "base_url": f"{refusing.url}/v1", "key": PROVIDER_KEY},
        # No listener.
        "gone": {"kind": "anthropic", "base_url": "http://127.0.0.1:9", "key": PROVIDER_KEY, "retries": 0},
    }
    llm = {"providers": providers, "models": {"refused-model": "refusing", "gone-model": "gone"}}
    with run_server(directory, {"llm": llm, "runs": {"grace": "1s"}}) as server:
        yield server


@pytest.fixture(scope="module")
def samples(server: Server) -> Called:
    """All sample tasks, run by one command."""
    return paddock_run(server, [ROOT / f"tasks/{name}.yaml" for name in (*AGENTS, *OTHERS)], parallel=3)


def test_all_samples_succeed(samples: Called) -> None:
    ends = {name: (done.run["state"], done.result["reason"]) for name, done in samples.runs.items()}
    assert ends == dict.fromkeys((*AGENTS, *OTHERS), ("succeeded", "the agent finished (exit code 0)"))
    assert samples.code == 0


@pytest.mark.parametrize("name", AGENTS)
class TestEachAgent:
    @pytest.fixture
    def done(self, samples: Called, name: str) -> Done:
        done = samples[name]
        assert done.run["state"] == "succeeded", done.result
        return done

    def test_delivers_the_report(self, done: Done) -> None:
        assert done.delivered("report.md") == REPORT
        assert [each["path"] for each in done.result["deliverables"]] == ["report.md"]
        assert done.result["missing"] == []

    def test_passes_the_checks(self, done: Done) -> None:
        assert [(check["name"], check["passed"]) for check in done.result["checks"]] == [
            ("it names the best month", True),
            ("it has the sum", True),
        ]
        assert done.result["score"] == 1.0

    def test_was_answered_by_a_script_which_is_said(self, done: Done, name: str) -> None:
        assert done.run["scripted"] and done.result["traffic"]["scripted"]
        assert done.run["task"]["agent"] == AGENTS[name]

    def test_has_its_conversation_in_its_folder(self, done: Done) -> None:
        said = [(each["role"], str(each.get("content"))) for each in done.conversation if each["kind"] == "main"]
        assert any(role == "user" and "visitors.csv has the visitors" in text for role, text in said)
        assert any(role == "assistant" and "I will look at the data first." in text for role, text in said)
        assert any(role == "tool" and "January,1820" in text for role, text in said)
        role, text = said[-1]
        assert role == "assistant" and "report.md is written." in text and "9945" in text

    def test_has_its_exchanges_in_the_archive(self, server: Server, done: Done) -> None:
        with server.client() as client:
            by_run = client.get("/v1/exchanges", params={"run": done.run["id"]}).json()["items"]
            by_sandbox = client.get("/v1/exchanges", params={"sandbox": done.run["sandboxId"]}).json()["items"]
        assert len(by_run) == done.result["traffic"]["requests"] >= 3
        assert [each["id"] for each in by_run] == [each["id"] for each in by_sandbox]
        assert {(each["outcome"], each["sandbox"]) for each in by_run} == {("ok", done.run["sandboxId"])}

    def test_tells_what_it_says_and_does(self, done: Done) -> None:
        said = "".join(each["text"] for each in done.told("text"))
        assert "I will look at the data first." in said and "report.md is written." in said
        calls, results = done.told("tool_call"), done.told("tool_result")
        assert "cat visitors.csv" in json.dumps(calls[0]["arguments"]) and len(calls) == 2
        assert [each["id"] for each in results] == [each["id"] for each in calls]
        assert "January,1820" in results[0]["text"] and not any(each["failed"] for each in results)
        assert done.told("error") == []

    def test_is_counted(self, done: Done) -> None:
        traffic = done.result["traffic"]
        assert traffic["inputTokens"] > 300 and traffic["outputTokens"] > 100 and traffic["failed"] == 0
        assert done.result["turns"] == 3
        usage = done.told("usage")[-1]
        assert (usage["requests"], usage["input_tokens"]) == (traffic["requests"], traffic["inputTokens"])

    def test_leaves_no_key_in_its_folder(self, done: Done) -> None:
        assert {"task.yaml", "result.json", "conversation.jsonl", "events.jsonl", "agent.out"} <= {
            path.name for path in done.files
        }
        for path in done.files:
            content = path.read_bytes()
            assert PROVIDER_KEY.encode() not in content and not OUR_KEY.search(content), path

    def test_leaves_no_sandbox(self, server: Server, done: Done) -> None:
        with server.client() as client:
            assert client.get(f"/v1/sandboxes/{done.run['sandboxId']}").status_code == 404


def test_a_bug_is_mended_and_the_tests_say_so(samples: Called) -> None:
    done = samples["fix-bug"]
    assert [(check["name"], check["passed"]) for check in done.result["checks"]] == [
        ("the tests pass", True),
        ("the tests were left alone", True),
    ]
    assert done.delivered("durations.py") != (ROOT / "tasks/data/fix-bug/durations.py").read_text()


def test_a_chart_is_drawn_and_a_report_written_around_it(samples: Called) -> None:
    done = samples["data-report"]
    assert (done.folder / "deliverables/chart.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "chart.png" in done.delivered("report.md") and done.result["score"] == 1.0


WRITES = """\
  - - say: I will write it.
    - shell: echo whole > report.md
  - say: It is written.
"""
SCRIPTS = {
    "down-at-start": "turns:\n  - fail: {status: 503, message: the provider is down, times: 4}\n" + WRITES,
    "down-midway": """\
turns:
  - shell: echo half > report.md
  - - say: I will
    - drop: {times: 2}
    - say: write it now.
    - shell: echo whole > report.md
  - say: It is written.
""",
    "down-for-good-midway": """\
turns:
  - shell: echo half > report.md
  - fail: {status: 503, message: the provider is down, times: always}
""",
}
# It would try ten times, and wait longer each time.
IMPATIENT = {"env": {"CLAUDE_CODE_MAX_RETRIES": "1"}}
TROUBLES: dict[str, dict[str, Any]] = {
    "down-for-long": {"llm": "gone-model", "end": {"timeout": "15s"}},  # the longest, so it begins first
    "refused": {"agent": "qwen-code", "llm": "refused-model"},
    "down-at-start": {},
    "down-midway": {},
    "down-for-good-midway": IMPATIENT,
    "down-for-good": {**IMPATIENT, "llm": "gone-model"},
}
NOSY = """
import json, os, socket, sys, urllib.error, urllib.request

def reached(host, port):
    try:
        socket.create_connection((host, port), 2).close()
        return True
    except OSError:
        return False

def status(path):
    request = urllib.request.Request(path if "://" in path else os.environ["PADDOCK_LLM_URL"] + path)
    request.add_header("Authorization", "Bearer " + os.environ["PADDOCK_LLM_KEY"])
    try:
        return urllib.request.urlopen(request, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None

json.dump({
    "places": {place: reached(*place.split()) for place in sys.argv[1:]},
    "interfaces": [name for _, name in socket.if_nameindex()],
    "models": status("/v1/models"),
    "others": [status(path) for path in ("/v1/sandboxes", "/v1/runs", "/v1/keys", "/v1/exchanges", "/docs")],
    "tools": status("http://127.0.0.1:8422/anything"),
}, open("seen.json", "w"))
"""


@pytest.fixture(scope="module")
def troubled(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Called:
    """Run tasks with failing models and one that tries to escape, with one command."""
    directory = tmp_path_factory.mktemp("troubled")
    files = []
    for name, more in TROUBLES.items():
        task = {"name": name, "goal": "Write report.md.", "agent": "claude-code", "deliverables": ["report.md"], **more}
        if name in SCRIPTS:
            (directory / f"{name}.script.yaml").write_text(SCRIPTS[name])
            task["llm"] = {"model": "claude-sonnet-4-5", "script": f"{name}.script.yaml"}
        files.append(directory / f"{name}.json")
        files[-1].write_text(json.dumps({**task, "end": {"timeout": "2m", **task.get("end", {})}}))
    nosy = {
        "name": "nosy",
        "goal": "Get out.",
        "image": "host",
        "entrypoint": ["python3", "nosy.py", *places(server)],
        "inputs": [{"content": NOSY, "target": "nosy.py"}],
        "deliverables": ["seen.json"],
    }
    files.append(directory / "nosy.json")
    files[-1].write_text(json.dumps(nosy))
    return paddock_run(server, files, parallel=3)


def places(server: Server) -> list[str]:
    return [
        server.domain.replace(":", " "),
        "1.1.1.1 80",
        "2606:4700:4700::1111 80",
        "169.254.169.254 80",
        "pypi.org 443",
        "localhost 22",
    ]


def test_an_error_is_told_where_the_exit_code_lies(troubled: Called, refusing: FakeProvider) -> None:
    done = troubled["refused"]
    assert (done.run["state"], done.result["endedBy"]) == ("failed", "agent_error")
    assert REFUSAL in done.result["reason"]
    assert done.result["exitCode"] == 0  # which is why it is not gone by
    assert REFUSAL in done.told("error")[-1]["message"]
    assert [each["path"] for each in done.result["missing"]] == ["/workspace/report.md"]
    assert troubled.code == 1
    # Only the provider received its key.
    assert refusing.received and refusing.received[0].header("authorization") == f"Bearer {PROVIDER_KEY}"
    for path in done.files:
        content = path.read_bytes()
        assert PROVIDER_KEY.encode() not in content and not OUR_KEY.search(content), path


@pytest.mark.parametrize("name", ["down-at-start", "down-midway"])
def test_a_provider_that_is_down_for_a_while_only_costs_time(troubled: Called, name: str) -> None:
    done = troubled[name]
    assert done.run["state"] == "succeeded", done.result
    assert done.delivered("report.md") == "whole\n"


def test_a_provider_that_is_down_for_good_fails_the_run(troubled: Called) -> None:
    done = troubled["down-for-good"]
    assert (done.run["state"], done.result["endedBy"]) == ("failed", "agent_error")
    assert "gone" in done.result["reason"] and done.result["traffic"]["failed"] >= 1
    assert done.result["seconds"] < 60


def test_what_was_made_before_a_provider_went_down_comes_back(troubled: Called) -> None:
    done = troubled["down-for-good-midway"]
    assert (done.run["state"], done.result["endedBy"]) == ("failed", "agent_error")
    assert "the provider is down" in done.result["reason"]
    assert done.delivered("report.md") == "half\n"
    assert "echo half" in json.dumps(done.conversation[-1]["tool_calls"])  # the last answered call


def test_an_agent_that_goes_on_asking_in_vain_ends_in_time(troubled: Called) -> None:
    done = troubled["down-for-long"]
    assert (done.run["state"], done.result["endedBy"]) == ("timed_out", "timeout")
    assert done.result["stages"]["watch"] < 30
    assert "gone" in done.result["traffic"]["lastError"]


def test_a_sandbox_reaches_the_models_and_nothing_else(server: Server, troubled: Called) -> None:
    done = troubled["nosy"]
    assert done.run["state"] == "succeeded", done.result
    seen = json.loads(done.delivered("seen.json"))
    assert seen["places"] == dict.fromkeys(places(server), False)
    assert seen["interfaces"] == ["lo"]
    assert (seen["models"], seen["others"], seen["tools"]) == (200, [404] * 5, None)


def test_nothing_is_left(server: Server, samples: Called, troubled: Called) -> None:
    with server.client() as client:
        assert client.get("/v1/sandboxes").json()["items"] == []
        for done in (*samples.runs.values(), *troubled.runs.values()):
            assert client.get(f"/v1/sandboxes/{done.run['sandboxId']}").status_code == 404
    assert not list((server.data / "boxes").glob("sb-*"))
