"""Sample tasks with the real agents in their images, also during provider failures.

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

from .agent_images import PADDOCK_KEY_PATTERN, ROOT, FinishedRun, RunCommandResult, paddock_run, share_images

pytestmark = pytest.mark.timeout(1500)
AGENTS = {
    "hello": "claude-code",
    "hello-codex": "codex",
    "hello-gemini-cli": "gemini-cli",
    "hello-opencode": "opencode",
    "hello-qwen-agent": "qwen-agent",
    "hello-qwen-code": "qwen-code",
}
OTHERS = ("fix-bug", "data-report", "order-list", "hello-script")
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
def samples(server: Server) -> RunCommandResult:
    """All sample tasks, run by one command."""
    return paddock_run(server, [ROOT / f"tasks/{name}.yaml" for name in (*AGENTS, *OTHERS)], parallel=3)


def test_all_samples_succeed(samples: RunCommandResult) -> None:
    ends = {name: (done.run["state"], done.result["reason"]) for name, done in samples.runs.items()}
    expected = dict.fromkeys((*AGENTS, *OTHERS), ("succeeded", "the agent finished (exit code 0)"))
    assert ends == {**expected, "hello-script": ("succeeded", "the program finished (exit code 0)")}
    assert samples.code == 0


@pytest.mark.parametrize("name", AGENTS)
class TestEachAgent:
    @pytest.fixture
    def done(self, samples: RunCommandResult, name: str) -> FinishedRun:
        done = samples[name]
        assert done.run["state"] == "succeeded", done.result
        return done

    def test_delivers_the_report(self, done: FinishedRun) -> None:
        assert done.delivered("report.md") == REPORT
        assert [each["path"] for each in done.result["deliverables"]] == ["report.md"]
        assert done.result["missing"] == []

    def test_passes_the_checks(self, done: FinishedRun) -> None:
        assert [(check["name"], check["passed"]) for check in done.result["checks"]] == [
            ("it names the best month", True),
            ("it has the sum", True),
        ]
        assert done.result["score"] == 1.0

    def test_is_marked_as_answered_by_a_script(self, done: FinishedRun, name: str) -> None:
        assert done.run["scripted"] and done.result["traffic"]["scripted"]
        assert done.run["task"]["agent"] == AGENTS[name]

    def test_stores_the_conversation_in_the_run_folder(self, done: FinishedRun) -> None:
        messages = [(each["role"], str(each.get("content"))) for each in done.conversation if each["kind"] == "main"]
        assert any(role == "user" and "visitors.csv has the visitors" in text for role, text in messages)
        assert any(role == "assistant" and "I will look at the data first." in text for role, text in messages)
        assert any(role == "tool" and "January,1820" in text for role, text in messages)
        role, text = messages[-1]
        assert role == "assistant" and "report.md is written." in text and "9945" in text

    def test_archives_its_exchanges(self, server: Server, done: FinishedRun) -> None:
        with server.client() as client:
            by_run = client.get("/v1/exchanges", params={"run": done.run["id"]}).json()["items"]
            by_sandbox = client.get("/v1/exchanges", params={"sandbox": done.run["sandboxId"]}).json()["items"]
        assert len(by_run) == done.result["traffic"]["requests"] >= 3
        assert [each["id"] for each in by_run] == [each["id"] for each in by_sandbox]
        assert {(each["outcome"], each["sandbox"]) for each in by_run} == {("ok", done.run["sandboxId"])}

    def test_emits_text_and_tool_events(self, done: FinishedRun) -> None:
        messages = "".join(each["text"] for each in done.event_data("text"))
        assert "I will look at the data first." in messages and "report.md is written." in messages
        calls, results = done.event_data("tool_call"), done.event_data("tool_result")
        assert "cat visitors.csv" in json.dumps(calls[0]["arguments"]) and len(calls) == 2
        assert [each["id"] for each in results] == [each["id"] for each in calls]
        assert "January,1820" in results[0]["text"] and not any(each["failed"] for each in results)
        assert done.event_data("error") == []

    def test_reports_its_usage(self, done: FinishedRun) -> None:
        traffic = done.result["traffic"]
        assert traffic["inputTokens"] > 300 and traffic["outputTokens"] > 100 and traffic["failed"] == 0
        assert done.result["turns"] == 3
        usage = done.event_data("usage")[-1]
        assert (usage["requests"], usage["input_tokens"]) == (traffic["requests"], traffic["inputTokens"])

    def test_leaves_no_key_in_its_folder(self, done: FinishedRun) -> None:
        assert {"task.yaml", "result.json", "conversation.jsonl", "events.jsonl", "agent.out"} <= {
            path.name for path in done.files
        }
        for path in done.files:
            content = path.read_bytes()
            assert PROVIDER_KEY.encode() not in content and not PADDOCK_KEY_PATTERN.search(content), path

    def test_leaves_no_sandbox(self, server: Server, done: FinishedRun) -> None:
        with server.client() as client:
            assert client.get(f"/v1/sandboxes/{done.run['sandboxId']}").status_code == 404


def test_fix_bug_sample_fixes_the_bug_and_passes_its_tests(samples: RunCommandResult) -> None:
    done = samples["fix-bug"]
    assert [(check["name"], check["passed"]) for check in done.result["checks"]] == [
        ("the tests pass", True),
        ("the tests were left alone", True),
    ]
    assert done.delivered("durations.py") != (ROOT / "tasks/data/fix-bug/durations.py").read_text()


def test_data_report_sample_delivers_a_report_with_a_chart(samples: RunCommandResult) -> None:
    done = samples["data-report"]
    assert (done.folder / "deliverables/chart.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "chart.png" in done.delivered("report.md") and done.result["score"] == 1.0


def test_order_list_sample_uses_its_mcp_server(samples: RunCommandResult) -> None:
    done = samples["order-list"]
    assert "| pencils | 12 | 88 |" in done.delivered("order.md") and done.result["score"] == 1.0
    (call,) = [json.loads(line) for line in (done.folder / "mcp.jsonl").read_text().splitlines()]
    assert (call["server"], call["target"], call["outcome"]) == ("stock", "items_below_minimum", "ok")


WRITE_TURNS = """\
  - - say: I will write it.
    - shell: echo whole > report.md
  - say: It is written.
"""
SCRIPTS = {
    "down-at-start": "turns:\n  - fail: {status: 503, message: the provider is down, times: 4}\n" + WRITE_TURNS,
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
FEW_RETRIES = {"env": {"CLAUDE_CODE_MAX_RETRIES": "1"}}
FAILING_TASKS: dict[str, dict[str, Any]] = {
    "down-for-long": {"llm": "gone-model", "end": {"timeout": "15s"}},  # the longest, so it begins first
    "refused": {"agent": "qwen-code", "llm": "refused-model"},
    "down-at-start": {},
    "down-midway": {},
    "down-for-good-midway": FEW_RETRIES,
    "down-for-good": {**FEW_RETRIES, "llm": "gone-model"},
}
NETWORK_PROBE = """
import json, os, socket, sys, urllib.error, urllib.request

def reached(host, port):
    # Every address accepts connections; an answer other than Paddock's refusal means that the target was reached.
    try:
        with socket.create_connection((host, port), 2) as connection:
            connection.settimeout(5)
            connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            answer = b""
            while data := connection.recv(4096):
                answer += data
            return bool(answer) and b"X-Paddock-Network: refused" not in answer
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
def failing_runs(server: Server, tmp_path_factory: pytest.TempPathFactory) -> RunCommandResult:
    """Run tasks with failing models and one that tries to escape, with one command."""
    directory = tmp_path_factory.mktemp("troubled")
    files = []
    for name, more in FAILING_TASKS.items():
        task = {"name": name, "goal": "Write report.md.", "agent": "claude-code", "deliverables": ["report.md"], **more}
        if name in SCRIPTS:
            (directory / f"{name}.script.yaml").write_text(SCRIPTS[name])
            task["llm"] = {"model": "claude-sonnet-4-5", "script": f"{name}.script.yaml"}
        files.append(directory / f"{name}.json")
        files[-1].write_text(json.dumps({**task, "end": {"timeout": "2m", **task.get("end", {})}}))
    network_probe = {
        "name": "nosy",
        "goal": "Get out.",
        "image": "host",
        "entrypoint": ["python3", "nosy.py", *probed_addresses(server)],
        "inputs": [{"content": NETWORK_PROBE, "target": "nosy.py"}],
        "deliverables": ["seen.json"],
    }
    files.append(directory / "nosy.json")
    files[-1].write_text(json.dumps(network_probe))
    return paddock_run(server, files, parallel=3)


def probed_addresses(server: Server) -> list[str]:
    return [
        server.domain.replace(":", " "),
        "1.1.1.1 80",
        "2606:4700:4700::1111 80",
        "169.254.169.254 80",
        "pypi.org 443",
        "localhost 22",
    ]


def test_agent_error_fails_the_run_despite_exit_code_zero(
    failing_runs: RunCommandResult, refusing: FakeProvider
) -> None:
    done = failing_runs["refused"]
    assert (done.run["state"], done.result["endedBy"]) == ("failed", "agent_error")
    assert REFUSAL in done.result["reason"]
    assert done.result["exitCode"] == 0  # So the exit code alone is not reliable.
    assert REFUSAL in done.event_data("error")[-1]["message"]
    assert [each["path"] for each in done.result["missing"]] == ["/workspace/report.md"]
    assert failing_runs.code == 1
    # Only the provider received its key.
    assert refusing.received and refusing.received[0].header("authorization") == f"Bearer {PROVIDER_KEY}"
    for path in done.files:
        content = path.read_bytes()
        assert PROVIDER_KEY.encode() not in content and not PADDOCK_KEY_PATTERN.search(content), path


@pytest.mark.parametrize("name", ["down-at-start", "down-midway"])
def test_run_succeeds_after_a_short_provider_outage(failing_runs: RunCommandResult, name: str) -> None:
    done = failing_runs[name]
    assert done.run["state"] == "succeeded", done.result
    assert done.delivered("report.md") == "whole\n"


def test_permanent_provider_outage_fails_the_run(failing_runs: RunCommandResult) -> None:
    done = failing_runs["down-for-good"]
    assert (done.run["state"], done.result["endedBy"]) == ("failed", "model")
    assert done.result["code"] == "PROVIDER_UNREACHED"
    assert "provider gone" in done.event_data("model_failed")[0]["message"]
    assert "gone" in done.result["reason"] and done.result["traffic"]["failed"] >= 1
    assert done.result["seconds"] < 60


def test_deliverables_from_before_an_outage_are_collected(failing_runs: RunCommandResult) -> None:
    done = failing_runs["down-for-good-midway"]
    assert (done.run["state"], done.result["endedBy"]) == ("failed", "agent_error")
    assert "the provider is down" in done.result["reason"]
    assert done.delivered("report.md") == "half\n"
    assert "echo half" in json.dumps(done.conversation[-1]["tool_calls"])  # the last answered call


def test_endlessly_retrying_agent_is_ended_by_the_time_limit(failing_runs: RunCommandResult) -> None:
    done = failing_runs["down-for-long"]
    assert (done.run["state"], done.result["endedBy"]) == ("timed_out", "timeout")
    assert done.result["stages"]["watch"] < 30
    assert "gone" in done.result["traffic"]["lastError"]


def test_sandbox_reaches_only_the_model_proxy(server: Server, failing_runs: RunCommandResult) -> None:
    done = failing_runs["nosy"]
    assert done.run["state"] == "succeeded", done.result
    probe = json.loads(done.delivered("seen.json"))
    assert probe["places"] == dict.fromkeys(probed_addresses(server), False)
    assert probe["interfaces"] == ["lo"]
    assert (probe["models"], probe["others"], probe["tools"]) == (200, [404] * 5, None)


def test_no_sandboxes_remain(server: Server, samples: RunCommandResult, failing_runs: RunCommandResult) -> None:
    with server.client() as client:
        assert client.get("/v1/sandboxes").json()["items"] == []
        for done in (*samples.runs.values(), *failing_runs.runs.values()):
            assert client.get(f"/v1/sandboxes/{done.run['sandboxId']}").status_code == 404
    assert not list((server.data / "boxes").glob("sb-*"))
