"""Model requests of sandboxes on a real server."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server import Server, run_in_sandbox

MODEL_REQUEST_PROGRAM = "python3 -c '{}'".format(
    "import os, sys, urllib.error as e, urllib.request as r\n"
    'key = sys.argv[1] if len(sys.argv) > 1 else os.environ["OPENAI_API_KEY"]\n'
    'request = r.Request(os.environ["OPENAI_BASE_URL"] + "/models", headers={"Authorization": "Bearer " + key})\n'
    "try: print(r.urlopen(request, timeout=10).status)\n"
    "except e.HTTPError as error: print(error.code)"
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    scenario: Path = tmp_path_factory.mktemp("scenario") / "scenario.yaml"
    scenario.write_text("[{say: hello}]\n")
    return {"llm": {"providers": {"script": {"kind": "script", "file": str(scenario)}}, "models": {"demo": "script"}}}


def sandbox_model_key(client: httpx.Client, sandbox: str) -> str:
    return run_in_sandbox(client, sandbox, "echo $PADDOCK_LLM_KEY")[0].strip()


def find_key(client: httpx.Client, sandbox: str) -> dict[str, Any]:
    (key,) = client.get("/v1/keys", params={"sandbox": sandbox}).json()["items"]
    assert isinstance(key, dict)
    return key


def create_sandbox_with_models(client: httpx.Client, **body: Any) -> str:
    response = client.post("/v1/sandboxes", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def test_sandbox_requests_use_its_own_key_only(server: Server, client: httpx.Client) -> None:
    one, other = create_sandbox_with_models(client), create_sandbox_with_models(client)
    assert run_in_sandbox(client, one, MODEL_REQUEST_PROGRAM)[0] == "200"
    stolen = sandbox_model_key(client, one)
    assert run_in_sandbox(client, other, f"{MODEL_REQUEST_PROGRAM} {stolen}")[0] == "401"
    assert run_in_sandbox(client, other, f"{MODEL_REQUEST_PROGRAM} {server.key}")[0] == "401"
    with server.client(stolen) as outside:
        assert outside.get("/v1/models").status_code == 401
        assert outside.get("/v1/sandboxes").status_code == 401


def test_restarted_server_serves_sandbox_model_requests(server: Server, client: httpx.Client) -> None:
    sandbox = create_sandbox_with_models(client, extensions={"paddock.llm.budget-requests": "7"})
    assert run_in_sandbox(client, sandbox, MODEL_REQUEST_PROGRAM)[0] == "200"
    port = int(server.url.rpartition(":")[2])
    server.stop(signal.SIGKILL)
    server.start(port)
    with server.client() as again:
        assert run_in_sandbox(again, sandbox, MODEL_REQUEST_PROGRAM)[0] == "200"
        assert find_key(again, sandbox)["budget"] == {"requests": 7}
        assert again.delete(f"/v1/sandboxes/{sandbox}").status_code == 204
        assert "revokedAt" in find_key(again, sandbox)


def test_server_responses_never_contain_the_key(server: Server, client: httpx.Client) -> None:
    sandbox = create_sandbox_with_models(client)
    secret = sandbox_model_key(client, sandbox)
    diagnostics = [f"/v1/sandboxes/{sandbox}/diagnostics/{what}" for what in ("inspect", "summary", "events", "logs")]
    for path in (f"/v1/sandboxes/{sandbox}", "/v1/sandboxes", f"/v1/keys?sandbox={sandbox}", *diagnostics):
        response = client.get(path)
        assert response.status_code == 200, path
        assert secret not in response.text, path
    assert secret[12:] not in server.log()


def test_sandboxes_name_the_default_model_unless_a_run_does(client: httpx.Client) -> None:
    names = ("PADDOCK_MODEL", "OPENAI_MODEL", "ANTHROPIC_MODEL", "GEMINI_MODEL")
    words = " ".join(f"${name}" for name in names)
    assert run_in_sandbox(client, create_sandbox_with_models(client), f"echo {words}")[0].split() == ["demo"] * 4
    of_run = create_sandbox_with_models(client, extensions={"paddock.llm.run": "run-1"})
    assert run_in_sandbox(client, of_run, f"echo {words}")[0].split() == []
    off = create_sandbox_with_models(client, extensions={"paddock.llm": "off"})
    assert run_in_sandbox(client, off, f"echo {words}")[0].split() == []
    own = create_sandbox_with_models(client, env={"OPENAI_MODEL": "mine"})
    assert run_in_sandbox(client, own, f"echo {words}")[0].split() == ["demo", "mine", "demo", "demo"]
