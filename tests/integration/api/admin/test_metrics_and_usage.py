"""Metrics of sandboxes and the server, and model usage over time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import Server, eventually, run_in_sandbox, run_server

SAMPLE = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\]|\\.)*",?)*\})? [0-9.e+-]+')


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("numbers")
    script = {"each_prompt": True, "turns": [{"when": {"prompt": "fail"}, "do": [{"fail": 400}]}, {"say": "Hello."}]}
    (directory / "s.yaml").write_text(json.dumps(script))
    llm = {
        "providers": {"s": {"kind": "script", "file": str(directory / "s.yaml"), "retries": 0}},
        "models": {"one": "s", "two": "s"},
    }
    with run_server(directory, {"llm": llm}) as running:
        yield running


def test_sandbox_metrics(client: httpx.Client, stranger: httpx.Client) -> None:
    sandbox = create_sandbox(client, resourceLimits={"cpu": "1", "memory": "512Mi", "pids": "100"})
    run_in_sandbox(client, sandbox, "head -c 3000000 /dev/urandom > /workspace/data")
    first = client.get(f"/v1/sandboxes/{sandbox}/metrics").json()
    assert (first["cpuLimit"], first["memoryLimit"], first["pidsLimit"]) == (1.0, 512 * 2**20, 100)
    assert first["diskLimit"] > first["disk"] >= 3_000_000
    (sample,) = first["samples"]
    assert 0 <= sample["cpu"] <= 1 and 2**20 < sample["memory"] < 512 * 2**20 and 1 <= sample["pids"] <= 100
    run_in_sandbox(client, sandbox, "while :; do :; done", background=True)
    # A busy machine may give it little CPU time.
    eventually(lambda: [each for each in list_samples(client, sandbox)[1:] if each["cpu"] > 0.01])
    assert stranger.get(f"/v1/sandboxes/{sandbox}/metrics").status_code == 404
    client.post(f"/v1/sandboxes/{sandbox}/pause")
    assert client.get(f"/v1/sandboxes/{sandbox}/metrics").json()["samples"] == []
    client.delete(f"/v1/sandboxes/{sandbox}")


def list_samples(client: httpx.Client, sandbox: str) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = client.get(f"/v1/sandboxes/{sandbox}/metrics").json()["samples"]
    return samples


def request_model(client: httpx.Client, prompt: str, model: str) -> int:
    body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    return client.post("/v1/chat/completions", json=body).status_code


@pytest.fixture(scope="module")
def archived_requests(client: httpx.Client) -> None:
    requests = (("Hello", "one"), ("Hello", "two"), ("Please fail", "one"), ("x", "three"))
    assert [request_model(client, *each) for each in requests] == [200, 200, 400, 404]
    eventually(lambda: len(client.get("/v1/exchanges").json()["items"]) == 4, 60)


def usage_series(client: httpx.Client, **query: str) -> dict[str, Any]:
    response = client.get("/v1/usage/series", params=query)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


@pytest.mark.usefixtures("archived_requests")
@pytest.mark.parametrize(("interval", "points"), [("hour", (24, 25)), ("day", (30, 31))])
def test_usage_series(client: httpx.Client, interval: str, points: tuple[int, int]) -> None:
    document = usage_series(client, interval=interval)
    assert len(document["items"]) in points and document["archived"] is True
    # The requests may fall into two hours.
    used_items = [item for item in document["items"] if item["requests"]]
    total = {
        name: sum(item[name] for item in used_items) for name in ("requests", "errors", "refused", "input", "output")
    }
    assert (total["requests"], total["errors"], total["refused"]) == (4, 2, 1)
    assert total["input"] > 0 and total["output"] > 0
    (measured,) = [item for item in used_items if "latency" in item][-1:]
    assert 0 < measured["latency"]["p50"] <= measured["latency"]["p90"] <= measured["latency"]["p99"] < 10
    assert 0 < measured["firstByte"]["p50"] <= measured["latency"]["p99"]
    times = [datetime.fromisoformat(item["at"]) for item in document["items"]]
    assert times == sorted(times) and times[-1] <= datetime.now(UTC)


@pytest.mark.usefixtures("archived_requests")
def test_usage_series_is_filtered_and_limited_to_the_tenant(client: httpx.Client, server: Server) -> None:
    assert sum(item["requests"] for item in usage_series(client, model="two")["items"]) == 1
    soon, later = ((datetime.now(UTC) + timedelta(hours=hours)).isoformat() for hours in (2, 4))
    assert all(item["requests"] == 0 for item in usage_series(client, since=soon, until=later)["items"])
    body = {"name": "reader", "tenant": "other", "scopes": ["llm:read"]}
    with server.client(client.post("/v1/keys", json=body).json()["secret"]) as reader:
        assert sum(item["requests"] for item in usage_series(reader, tenant="default")["items"]) == 0


@pytest.mark.parametrize(
    "query",
    [
        {"interval": "minute"},
        {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
        {"since": "2020-01-01T00:00:00Z", "interval": "hour"},
        {"since": "2026-01-01"},
        {"since": "0001-01-01T00:00:00+14:00"},
    ],
)
def test_invalid_queries_are_rejected(client: httpx.Client, query: dict[str, str]) -> None:
    response = client.get("/v1/usage/series", params=query)
    assert (response.status_code, response.json()["code"]) == (400, "INVALID_INPUT")


@pytest.mark.usefixtures("archived_requests")
def test_prometheus_metrics(client: httpx.Client, stranger: httpx.Client) -> None:
    sandbox = create_sandbox(client)
    response = client.get("/v1/metrics")
    assert response.status_code == 200 and response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in lines)
    assert any(re.fullmatch(r'paddock_sandboxes\{state="Running"\} [1-9]', line) for line in lines)
    assert 'paddock_llm_requests_total{model="two",provider="s"} 1' in lines
    assert any(line.startswith('paddock_http_requests_total{method="POST",status="200"}') for line in lines)
    for name in ("paddock_event_loop_lag_seconds_count", "process_resident_memory_bytes", "process_open_fds"):
        assert any(line.startswith(f"{name} ") and float(line.split()[1]) > 0 for line in lines), name
    assert any(re.fullmatch(r'paddock_http_request_seconds_bucket\{le="\+Inf"\} [1-9][0-9]*', line) for line in lines)
    for name in ("paddock_llm_request_seconds", "paddock_llm_first_byte_seconds"):
        assert f'{name}_count{{model="two",provider="s"}} 1' in lines
        assert f'{name}_bucket{{model="two",provider="s",le="+Inf"}} 1' in lines
    assert 'paddock_llm_open_circuits{provider="s"} 0' in lines
    # States without sandboxes or runs have a series too.
    assert 'paddock_sandboxes{state="Failed"} 0' in lines and 'paddock_runs{state="running"} 0' in lines
    assert stranger.get("/v1/metrics").status_code == 403
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_metrics_key_reads_only_metrics(client: httpx.Client, server: Server) -> None:
    key = client.post("/v1/keys", json={"name": "prometheus", "scopes": ["metrics:read"]}).json()
    with server.client(key["secret"]) as scraper:
        assert scraper.get("/v1/metrics").status_code == 200
        assert scraper.get("/v1/sandboxes").status_code == 403
        assert scraper.get("/v1/logs").status_code == 403
    body = {"name": "local", "scopes": ["keys:admin"]}
    with server.client(client.post("/v1/keys", json=body).json()["secret"]) as local:
        response = local.post("/v1/keys", json={"name": "p", "scopes": ["metrics:read"]})
    assert response.status_code == 403, "metrics count all tenants"
