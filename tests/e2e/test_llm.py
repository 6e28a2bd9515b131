"""Models by the command line: tests, log, export, recording and replay, with a scripted model."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli_driver import PaddockCli, PaddockCliServer
from tests.support.server import eventually

SCRIPT = Path(__file__).parents[2] / "examples/scripts/hello.yaml"
AGENT_PROGRAM = """
import json, os, sys, urllib.request
def ask(text):
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
for text in sys.argv[1:]:
    print(ask(text))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockCliServer]:
    """A server with a scripted model, a model without a provider, and requests to both."""
    directory = tmp_path_factory.mktemp("llm")
    settings = {
        "providers": {
            "demo": {"kind": "script", "file": str(SCRIPT)},
            "away": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "retries": 0},
        },
        "models": {"demo": "demo", "away": "away/gpt-away"},
    }
    (directory / "paddock.yaml").write_text(json.dumps({"llm": settings}))
    server = PaddockCliServer(directory / "data")
    server.env["PADDOCK_CONFIG"] = str(directory / "paddock.yaml")
    server.start_server()
    server.run("llm", "test", "demo", "--prompt", "Where is the 围场?")
    server.run("llm", "test", "away")
    eventually(lambda: len(list_exchanges(server)) == 2)
    yield server
    assert server.stop_server() == 0


def list_exchanges(server: PaddockCliServer, *filters: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.json_output("llm", "log", *filters)
    return found


def run_agent(server: PaddockCli, arguments: list[str], *texts: str) -> Any:
    return server.run(*arguments, "--", sys.executable, "-c", AGENT_PROGRAM, *texts)


def test_models_are_listed_with_their_providers(models: PaddockCliServer) -> None:
    listed = models.json_output("llm", "list")
    assert [(each["name"], each["provider"]) for each in listed["models"]] == [("demo", "demo"), ("away", "away")]
    heads, first, second = models.output("llm", "list").splitlines()
    assert heads.split()[:3] == ["MODEL", "PROVIDER", "KIND"]
    assert first.split() == ["demo", "demo", "script", "demo", "ready"]
    assert second.split()[:4] == ["away", "away", "openai", "gpt-away"]


@pytest.mark.parametrize("how", [(), ("--stream",)])
def test_llm_test_prints_reply_and_names_scripted_model(models: PaddockCliServer, how: tuple[str, ...]) -> None:
    shown = models.output("llm", "test", "demo", *how)
    assert shown.startswith("hello\n\nanswered by  demo, a scripted model; no real model was used\nfirst byte")
    document = models.json_output("llm", "test", "demo", *how)
    assert document["answer"] == "hello" and document["usage"]["output"] > 0
    assert document["exchange"]["stream"] == bool(how) and document["exchange"]["cost"] == 0


def test_llm_test_fails_with_reason_for_unreachable_model(models: PaddockCliServer) -> None:
    result = models.run("llm", "test", "away", "--stream")
    assert (result.returncode, result.stdout) == (1, b"")
    reason, hint = result.stderr.decode().splitlines()
    refused = "error: provider away: the upstream could not be reached: Connection refused; check its address http://"
    assert reason.startswith(refused)
    assert hint.strip().startswith("details: paddock llm show ex-")
    unknown = models.run("llm", "test", "nobody")
    assert unknown.stderr.decode() == "error: There is no model 'nobody'. Models: away, demo.\n"


def test_llm_log_can_be_filtered(models: PaddockCliServer) -> None:
    assert {each["outcome"] for each in list_exchanges(models, "--model", "away")} == {"failed"}
    assert {each["model"] for each in list_exchanges(models, "--outcome", "ok", "--all")} == {"demo"}
    assert len(list_exchanges(models, "--limit", "1")) == 1
    assert list_exchanges(models, "--until", "2020-01-01") == []
    [found] = eventually(lambda: list_exchanges(models, "--search", "围场"))
    assert found["number"] == 1
    table = models.output("llm", "log", "--search", "围场").splitlines()
    assert table[0].split() == ["NO", "TIME", "MODEL", "IN", "OUT", "COST", "TOOK", "OUTCOME"]
    assert table[1].endswith("ok (script)")
    for wrong in (("--outcome", "bad"), ("--since", "bad")):
        result = models.run("llm", "log", *wrong)
        assert result.returncode == 2 and result.stderr.startswith(b"error: --")


def test_exchange_is_shown_by_number_and_id(models: PaddockCliServer) -> None:
    shown = models.output("llm", "show", "1")
    assert shown.endswith("\n\nuser\n  Where is the 围场?\n\nanswer  ends with stop\n  hello")
    document = models.json_output("llm", "show", "1")
    assert models.output("llm", "show", document["id"]) == shown
    request = json.loads(models.output("llm", "show", "1", "--raw", "request"))
    assert request["messages"][0]["content"] == "Where is the 围场?"
    assert json.loads(models.output("llm", "show", "1", "--raw", "response"))["choices"]
    assert models.json_output("llm", "show", "1", "--thread")["exchanges"] == [document["id"]]
    wrong = models.run("llm", "show", "1", "--raw", "foo")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(b"error: invalid value for '--raw': 'foo' is not one of 'request', 'response'")
    gone = models.run("llm", "show", "99999")
    assert gone.returncode == 1 and b"there is no exchange 99999" in gone.stderr


def test_sandbox_requests_are_archived_with_their_sandbox(models: PaddockCliServer) -> None:
    sandbox = models.output("sandbox", "create", "--image", "host", "--name", "asker")
    try:
        assert models.output("sandbox", "exec", sandbox, "--", "python3", "-c", AGENT_PROGRAM, "Hello there") == "hello"
        [found] = eventually(lambda: list_exchanges(models, "--sandbox", "asker"))
        assert found["sandbox"] == sandbox
        [conversation] = models.json_output("llm", "conversations", "asker")
        assert conversation["exchanges"] == [found["id"]]
        assert "Hello there" in models.output("llm", "conversations", "asker")
    finally:
        models.run("sandbox", "rm", sandbox)
    # Exchanges outlive the sandbox and are still found by its id.
    assert [each["id"] for each in list_exchanges(models, "--sandbox", sandbox[3:11])] == [found["id"]]
    named = models.run("llm", "conversations", "asker")
    assert named.returncode == 1 and b"use its id prefix from the SANDBOX column" in named.stderr


def test_sandbox_requests_are_limited_by_budget(models: PaddockCliServer) -> None:
    terms = ("-x", "paddock.llm.budget-requests=1", "-x", "paddock.llm.run=nightly")
    sandbox = models.output("sandbox", "create", "--image", "host", *terms)
    try:
        result = models.run("sandbox", "exec", sandbox, "--", "python3", "-c", AGENT_PROGRAM, "once", "twice")
        assert result.stdout == b"hello\n" and b"HTTP Error 402" in result.stderr
        eventually(lambda: models.run("llm", "log", "--run", "nightly").stdout.count(b"\n") == 3)
        assert [each["outcome"] for each in list_exchanges(models, "--run", "nightly")] == ["refused", "ok"]
    finally:
        models.run("sandbox", "rm", sandbox)


def test_llm_tail_follows_new_requests_until_ctrl_c(models: PaddockCliServer) -> None:
    last = list_exchanges(models, "--limit", "1")[0]["number"]
    tail = models.start("llm", "tail", "--after", str(last), "--json")
    assert tail.stdout is not None and tail.stderr is not None
    models.run("llm", "test", "demo", "--prompt", "followed")
    assert json.loads(tail.stdout.readline())["number"] > last
    tail.send_signal(signal.SIGINT)
    assert tail.wait(10) == 130
    assert tail.stderr.read() == b""
    tail.stdout.close()
    tail.stderr.close()


def test_conversations_are_exported_completely_or_not_at_all(models: PaddockCliServer, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    result = models.run("llm", "export", "--search", "围场", "-o", str(file))
    assert (result.returncode, result.stdout) == (0, b"")
    assert result.stderr.decode() == f"1 conversation in {file}\n"
    replayed = models.run("llm", "replay", str(file), "--", "true")
    assert replayed.returncode == 1
    assert replayed.stderr.decode() == f"error: {file} is no recording; make one with: paddock llm record FILE\n"
    [line] = file.read_text().splitlines()
    assert json.loads(line)["messages"][0] == {"role": "user", "content": "Where is the 围场?"}
    piped = models.run("llm", "export", "--search", "围场", "--form", "anthropic")
    assert json.loads(piped.stdout)["messages"][0]["content"][0]["text"] == "Where is the 围场?"
    wrong = models.run("llm", "export", "--search", '"', "-o", str(tmp_path / "no.jsonl"))
    assert wrong.returncode == 2 and wrong.stderr.startswith(b"error: --search ")
    assert list(tmp_path.iterdir()) == [file]


def test_llm_usage_is_summed(models: PaddockCliServer) -> None:
    total = models.json_output("llm", "usage", "--by", "model")["total"]
    assert total["requests"] >= 2 and total["errors"] >= 1
    table = models.output("llm", "usage", "--by", "provider").splitlines()
    assert table[0].split() == ["PROVIDER", "REQUESTS", "FAILED", "IN", "OUT", "COST"]
    assert table[-1].split()[0] == "total"
    assert models.output("llm", "usage", "--by", "model,model").startswith("MODEL  REQUESTS")
    [key] = {each["key"] for each in models.json_output("llm", "usage", "--by", "key", "--model", "demo")["items"]} & {
        each["id"] for each in models.json_output("key", "list") if each["name"] == "local"
    }
    assert f"{key} local " in models.output("llm", "usage", "--by", "key")
    wrong = models.run("llm", "usage", "--by", "colour")
    assert wrong.returncode == 2 and b"--by 'colour' is unknown" in wrong.stderr


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.zst"])
def test_replay_replaces_the_model(models: PaddockCliServer, tmp_path: Path, name: str) -> None:
    file = str(tmp_path / name)
    result = models.run("llm", "record", file, "--id", "1")
    assert result.stderr.decode() == f"1 exchange in {file}\n"
    more = models.run("llm", "record", file, "--id", "1", "--append")
    assert more.stderr.decode() == f"0 added, 1 in {file}\n"
    again = models.run("llm", "record", file, "--id", "1")
    assert again.returncode == 1 and b"already exists" in again.stderr
    assert models.json_output("llm", "record", file, "--id", "1", "--append")["exchanges"] == 0

    cli = PaddockCli(tmp_path / "elsewhere")  # no server, no configuration
    replayed = run_agent(cli, ["llm", "replay", file], "Where is the 围场?")
    assert (replayed.returncode, replayed.stdout) == (0, b"hello\n")
    assert replayed.stderr.decode() == f"{file}: 1 answered from the recording\n"

    missed = run_agent(cli, ["llm", "replay", file], "Where is it not?")
    assert missed.returncode == 1
    assert "no recorded request asks for the same" in missed.stderr.decode()
    tally = "0 answered from the recording, 1 without an answer in the recording"
    assert missed.stderr.decode().endswith(f"{file}: {tally}\n")

    arguments = ["llm", "replay", file, "--miss", "demo"]
    extended = run_agent(models, arguments, "Where is it not?")
    assert extended.stderr.decode().endswith("0 answered from the recording, 1 sent to a model and recorded\n")
    assert run_agent(cli, ["llm", "replay", file], "Where is it not?").stdout == b"hello\n"
    assert not (tmp_path / "elsewhere").exists()


def test_recorded_failures_are_replayed_any_number_of_times(models: PaddockCliServer, tmp_path: Path) -> None:
    file = str(tmp_path / "run.jsonl")
    models.run("llm", "record", file, "--model", "away")
    prompt = "Say hello in one short sentence."
    # A provider with so many failures would be skipped for a while.
    attempts = f"\nfor _ in range(7):\n  try: ask({prompt!r})\n  except OSError as error: print(error)"
    arguments = AGENT_PROGRAM.split("for text")[0] + attempts
    result = models.run("llm", "replay", file, "--", sys.executable, "-c", arguments)
    assert result.stdout == b"HTTP Error 502: Bad Gateway\n" * 7
    assert result.stderr.decode() == f"{file}: 7 answered from the recording\n"


def test_replay_returns_the_exit_code_of_its_command(models: PaddockCliServer, tmp_path: Path) -> None:
    file = str(tmp_path / "run.jsonl")
    models.run("llm", "record", file, "--id", "1")
    assert models.run("llm", "replay", file, "--", "sh", "-c", "exit 7").returncode == 7
    assert models.run("llm", "replay", file, "--", "sh", "-c", "kill -9 $$").returncode == 137
    missing = models.run("llm", "replay", file, "--", "no-such-program")
    assert missing.returncode == 127 and b"no-such-program cannot be run" in missing.stderr
    nothing = models.run("llm", "replay", str(tmp_path / "none"), "--", "true")
    assert nothing.returncode == 1 and nothing.stderr.startswith(b"error: ") and nothing.stderr.count(b"\n") == 1


def test_replay_serves_until_terminated(models: PaddockCliServer, tmp_path: Path) -> None:
    file = str(tmp_path / "run.jsonl")
    models.run("llm", "record", file, "--id", "1")
    serving = models.start("llm", "replay", file, "--json")
    assert serving.stdout is not None and serving.stderr is not None
    ready = json.loads(serving.stdout.readline())
    assert ready["environment"]["OPENAI_BASE_URL"] == ready["url"] + "/v1"
    assert ready["environment"]["ANTHROPIC_API_KEY"] == ready["key"]
    serving.send_signal(signal.SIGTERM)
    assert serving.wait(10) == 0
    assert serving.stderr.read() == b""
    serving.stdout.close()
    serving.stderr.close()


def test_server_without_models_lists_demo_and_empty_log(tmp_path: Path) -> None:
    server = PaddockCliServer(tmp_path / "data")
    server.start_server()
    assert [model["name"] for model in server.json_output("llm", "list")["models"]] == ["demo"]
    assert server.output("llm", "log") == ""
    assert server.json_output("llm", "usage")["items"] == []
    nothing = server.run("llm", "record", "never.jsonl")
    assert nothing.returncode == 1 and b"no matching exchanges to record" in nothing.stderr
    assert server.stop_server() == 0


def test_llm_test_without_a_name_asks_the_default_model(models: PaddockCliServer) -> None:
    default = models.json_output("llm", "list")["default"]
    assert models.json_output("llm", "test")["model"] == default
