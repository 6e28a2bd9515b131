"""Keys with model limits and budgets."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.server import Server

WHOLE: dict[str, Any] = {
    "name": "ann",
    "scopes": ["llm:use"],
    "run": "run-1",
    "session": "s-1",
    "user": "ann@example.org",
    "models": ["gpt-*", "claude"],
    "budget": {"requests": 10, "tokens": 1000, "cost": 2.5},
    "limits": {"concurrency": 2, "requestsPerMinute": 60, "tokensPerMinute": 10_000},
}


def test_key_terms_are_returned(client: httpx.Client) -> None:
    response = client.post("/v1/keys", json=WHOLE)
    assert response.status_code == 201, response.text
    assert response.json().items() >= WHOLE.items()
    key_id = response.json()["id"]
    one = client.get(f"/v1/keys/{key_id}").json()
    assert one.items() >= WHOLE.items()
    assert "secret" not in one
    (listed,) = [key for key in client.get("/v1/keys").json()["items"] if key["id"] == key_id]
    assert listed == one


def test_plain_key_has_no_model_terms(client: httpx.Client) -> None:
    key = client.post("/v1/keys", json={"name": "plain"}).json()
    assert not key.keys() & {"models", "budget", "left", "limits", "sandbox", "run", "session", "user"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"scopes": ["llm:use", "admin"]}, "cannot have admin"),
        ({"scopes": ["sandboxes:read"]}, "llm:use"),
        ({"budget": {"requests": 0}}, "budget.requests"),
        ({"budget": {"cost": -1}}, "budget.cost"),
        ({"budget": {"money": 1}}, "no field budget.money"),
        ({"limits": {"concurrency": 10**30}}, "limits.concurrency"),
        ({"models": ["two words"]}, "models.0"),
        ({"models": ["m"] * 101}, "models"),
        ({"user": "a b"}, "user"),
    ],
)
def test_contradictory_key_terms_are_refused(client: httpx.Client, change: dict[str, Any], problem: str) -> None:
    response = client.post("/v1/keys", json={**WHOLE, **change})
    assert response.status_code == 400, response.text
    assert problem in response.json()["message"]


def test_key_for_a_sandbox_requires_a_sandbox_of_the_tenant(
    server: Server, client: httpx.Client, stranger: httpx.Client, sandbox: str
) -> None:
    body = {"name": "more", "scopes": ["llm:use"], "sandbox": sandbox}
    assert client.post("/v1/keys", json={**body, "sandbox": "sb-none"}).status_code == 404
    assert client.post("/v1/keys", json={**body, "tenant": "other"}).status_code == 404
    assert stranger.post("/v1/keys", json={**body, "tenant": "default"}).status_code == 403
    assert client.post("/v1/keys", json={**body, "scopes": ["llm:use", "llm:read"]}).status_code == 400
    sandbox_key = client.post("/v1/keys", json=body).json()
    assert sandbox_key["sandbox"] == sandbox
    assert sandbox_key["id"] not in {key["id"] for key in client.get("/v1/keys").json()["items"]}
    assert sandbox_key["id"] in {
        key["id"] for key in client.get("/v1/keys", params={"sandbox": sandbox}).json()["items"]
    }
    with server.client(sandbox_key["secret"]) as from_outside:
        response = from_outside.get("/v1/sandboxes")
    assert response.status_code == 401
    assert "only" in response.json()["message"]


def test_model_extensions_of_a_sandbox_are_shown_and_validated(client: httpx.Client) -> None:
    extensions = {"paddock.llm": "off", "paddock.llm.budget-tokens": "100"}
    sandbox = client.post("/v1/sandboxes", json={"extensions": extensions}).json()
    assert sandbox["extensions"] == extensions
    client.delete(f"/v1/sandboxes/{sandbox['id']}")
    response = client.post("/v1/sandboxes", json={"extensions": {"paddock.other": "x"}})
    assert response.status_code == 400
    assert "reserved" in response.json()["message"]
