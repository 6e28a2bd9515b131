"""The server's log over HTTP, for administrators."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import Server, eventually


def log_lines(client: httpx.Client, **query: object) -> list[dict[str, object]]:
    response = client.get("/v1/logs", params={name: str(value) for name, value in query.items()})
    assert response.status_code == 200, response.text
    items: list[dict[str, object]] = response.json()["items"]
    return items


def test_only_administrators_read_the_log(server: Server, client: httpx.Client, stranger: httpx.Client) -> None:
    assert stranger.get("/v1/logs").status_code == 403
    assert httpx.get(f"{server.url}/v1/logs").status_code == 401


def test_log_lines_have_their_fields(client: httpx.Client) -> None:
    (serving,) = log_lines(client, q="serving data")
    assert serving["event"] == "serving" and serving["level"] == "info"
    assert str(serving["fields"]["url"]).startswith("http")  # type: ignore[index]
    client.get("/v1/nowhere-at-all")
    lines = eventually(lambda: log_lines(client, q="nowhere-at-all"))
    assert lines[-1]["fields"]["status"] == 404 and lines[-1]["level"] == "debug"  # type: ignore[index]


def test_log_covers_the_sandbox_lifecycle(client: httpx.Client) -> None:
    body = {"image": {"uri": "host"}, "metadata": {"name": "secret-name"}}
    sandbox = client.post("/v1/sandboxes", json=body).raise_for_status().json()["id"]
    client.delete(f"/v1/sandboxes/{sandbox}").raise_for_status()
    lines = eventually(lambda: [line for line in log_lines(client, q=sandbox) if line["event"] == "sandbox.ended"])
    (ended,) = lines
    assert ended["level"] == "info"
    assert ended["fields"] == {"sandbox": sandbox, "tenant": "default", "reason": "deleted"}
    events = [line["event"] for line in log_lines(client, q=sandbox) if str(line["event"]).startswith("sandbox.")]
    assert events == ["sandbox.created", "sandbox.running", "sandbox.ended"]
    assert log_lines(client, q="secret-name") == []


def test_log_covers_a_run(client: httpx.Client) -> None:
    task = {"name": "logged", "goal": "secret-goal", "image": "host", "entrypoint": "echo secret-output"}
    run = client.post("/v1/runs", json={"task": task}).raise_for_status().json()["runs"][0]["id"]
    lines = eventually(lambda: subject_lines(client, run, "run.ended"))
    assert [line["event"] for line in lines if line["event"] != "run.sandbox"] == [
        "run.queued",
        "run.started",
        "run.ended",
    ]
    assert {line["level"] for line in lines} == {"info"}
    fields = lines[-1]["fields"]
    assert (fields["run"], fields["state"]) == (run, "succeeded")  # type: ignore[index]
    assert log_lines(client, q="secret-goal") == log_lines(client, q="secret-output") == []


def test_log_covers_a_chat_turn(client: httpx.Client) -> None:
    session = client.post("/v1/sessions", json={"kinds": [], "model": "demo"}).raise_for_status().json()["id"]
    body = {"content": [{"type": "text", "text": "secret-question"}]}
    client.post(f"/v1/sessions/{session}/messages", json=body).raise_for_status()
    lines = eventually(lambda: subject_lines(client, session, "turn.ended"))
    assert [line["event"] for line in lines] == ["session.created", "turn.started", "turn.ended"]
    assert lines[-1]["fields"]["session"] == session  # type: ignore[index]
    assert log_lines(client, q="secret-question") == []


def test_log_covers_an_image_build(client: httpx.Client) -> None:
    client.post("/v1/images/host/build").raise_for_status()
    lines = eventually(lambda: subject_lines(client, "host", "image build finished", beginning="image build"))
    assert [line["event"] for line in lines] == ["image build started", "image build finished"]
    assert lines[-1]["fields"]["image"] == "host"  # type: ignore[index]


def subject_lines(client: httpx.Client, subject: str, last: str, *, beginning: str = "") -> list[dict[str, object]]:
    """Return the lines of a run, chat or image above the level debug, or none before the last one is there."""
    lines = [line for line in log_lines(client, q=subject, level="info") if str(line["event"]).startswith(beginning)]
    return lines if any(line["event"] == last for line in lines) else []


def test_log_is_filtered_and_paged(client: httpx.Client) -> None:
    for _ in range(5):
        client.get("/healthz")
    assert {line["level"] for line in log_lines(client, level="info")} <= {"info", "warning", "error"}
    newest = log_lines(client, limit=2)
    assert len(newest) == 2
    first, second = (int(str(line["number"])) for line in newest)
    assert first + 1 == second
    assert all(int(str(line["number"])) > second for line in log_lines(client, after=second))


@pytest.mark.parametrize("query", [{"level": "loud"}, {"limit": "0"}, {"after": "-1"}, {"q": "x" * 300}])
def test_invalid_queries_are_rejected(client: httpx.Client, query: dict[str, str]) -> None:
    response = client.get("/v1/logs", params=query)
    assert (response.status_code, response.json()["code"]) == (400, "INVALID_INPUT")


def test_log_can_be_followed(server: Server, client: httpx.Client) -> None:
    headers = {"Accept": "text/event-stream"}
    with (
        server.client() as other,
        other.stream("GET", "/v1/logs", params={"q": "marked-path", "limit": "5"}, headers=headers) as response,
    ):
        coming = response.iter_lines()
        assert next(coming).startswith(":")
        for _ in range(2):
            client.get("/v1/marked-path")
            followed_line = next(json.loads(line[6:]) for line in coming if line.startswith("data: "))
            assert followed_line["event"] == "request" and followed_line["fields"]["path"] == "/v1/marked-path"


def test_log_contains_no_secret(server: Server, client: httpx.Client) -> None:
    sandbox = create_sandbox(client, env={"TOKEN": "very-secret-value"})
    client.delete(f"/v1/sandboxes/{sandbox}")
    text = json.dumps(log_lines(client, limit=5000))
    assert server.key not in text and "very-secret-value" not in text


def test_log_followers_do_not_delay_shutdown(server: Server) -> None:
    with server.client() as client:
        port = int(server.domain.split(":")[1])
        with client.stream("GET", "/v1/logs", headers={"Accept": "text/event-stream"}) as response:
            coming = response.iter_lines()
            next(coming)
            server.stop(timeout=10)
            list(coming)
        server.start(port)
