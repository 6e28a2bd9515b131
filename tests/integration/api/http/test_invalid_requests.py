"""Invalid requests get a one-line error that names the fix."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import Server, run_in_sandbox


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"server": {"max_body": "64Ki"}, "sandboxes": {"max_timeout": "1d"}}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"timuot": 5}, "there is no field timuot; did you mean timeout?"),
        ({"timeout": "5"}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 10**9}, "timeout"),
        ({"image": {}}, "image.uri"),
        ({"image": {"uri": "nope"}, "snapshotId": "x"}, "one of image, snapshotId and poolRef"),
        ({"resourceLimits": {"memory": "lots"}}, "resourceLimits.memory: 'lots' is not a size"),
        ({"resourceLimits": {"memory": "1Ki"}}, "resourceLimits.memory"),
        ({"resourceLimits": {"cpu": "-1"}}, "resourceLimits.cpu"),
        ({"resourceLimits": {"pids": "many"}}, "resourceLimits.pids"),
        ({"resourceLimits": {"memory": "999999Pi"}}, "larger than any machine offers"),
        ({"resourceLimits": {"memroy": "1Gi"}}, "there is no 'memroy'"),
        ({"resourceLimits": {"gpu": "1"}}, "no GPU"),
        ({"metadata": {"a b": "c"}}, "metadata"),
        ({"metadata": {"a": "é"}}, "metadata.a"),
        ({"metadata": {"opensandbox.io/id": "c"}}, "reserved"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"env": {"A": "x\0y"}}, "NUL"),
        ({"entrypoint": []}, "entrypoint"),
        ({"entrypoint": [""]}, "entrypoint"),
        ({"networkPolicy": {"defaultAction": "ask"}}, "networkPolicy.defaultAction"),
        ({"networkPolicy": {"egress": [{"action": "allow", "target": "a b"}]}}, "networkPolicy.egress.0: rule"),
        ({"network": "open", "networkPolicy": {}}, "network and networkPolicy"),
        ({"network": ["allow pypi.org:https"]}, "must be ports such as 443"),
        ({"network": ["pypi.org", "none"]}, "'none' stands alone"),
        ({"network": [{"permit": "pypi.org"}]}, "'allow' and 'deny'"),
        ({"network": 7}, "network: must be none, open, web, packages, git, or a list of rules"),
        ({"platform": {"os": "windows", "arch": "amd64"}}, "linux"),
        ({"secureAccess": True}, "secureAccess"),
        ({"credentialProxy": {"enabled": "perhaps"}}, "credentialProxy.enabled"),
        ({"credentialProxy": {"enabled": True, "secrets": {}}}, "credentialProxy"),
        ({"credentialProxy": True}, "credentialProxy"),
        ({"credentialProxy": {"enabled": False}, "extensions": {"paddock.vault": "enabled"}}, "credentialProxy"),
        ({"extensions": {"paddock.vault": "perhaps"}}, "paddock.vault"),
        ({"lifecycle": {"preStart": {"command": ["true"]}}}, "lifecycle"),
        ({"templateId": "tpl"}, "templates"),
        ({"resourceRequests": {"cpu": "1"}}, "resourceRequests"),
        ({"volumes": [{"name": "a", "mountPath": "/a"}]}, "exactly one of host and pvc"),
        ({"volumes": [{"name": "a", "mountPath": "/a", "ossfs": {}}]}, "ossfs"),
        ({"volumes": [{"name": "a", "mountPath": "/proc", "pvc": {"claimName": "c"}}]}, "/proc"),
        (
            {"volumes": [{"name": "a", "mountPath": "/usr", "pvc": {"claimName": "c"}}]},
            "it would hide what the sandbox",
        ),
        ({"volumes": [{"name": "a", "mountPath": "/a/../usr/", "pvc": {"claimName": "c"}}]}, "at /usr"),
        ({"extensions": {"requestKey": "x" * 300}}, "request key"),
    ],
)
def test_invalid_sandbox_requests_name_the_field(client: httpx.Client, body: dict[str, Any], words: str) -> None:
    response = client.post("/v1/sandboxes", json=body)
    assert response.status_code == 400, response.text
    document = response.json()
    assert set(document) == {"code", "message"}
    assert words in document["message"] and "\n" not in document["message"]


def test_sub_path_that_is_a_link_out_of_its_volume_is_rejected(client: httpx.Client) -> None:
    volume = {"name": "v", "pvc": {"claimName": "linked"}, "mountPath": "/v"}
    maker = create_sandbox(client, volumes=[volume])
    links = "ln -s /etc /v/absolute; ln -s ../../../../../etc /v/relative; ln -s ../.. /v/root; ls /v"
    assert run_in_sandbox(client, maker, links) == ("absolute\nrelative\nroot", 0)
    for path in ("absolute", "relative", "absolute/passwd", "root/x"):
        response = client.post("/v1/sandboxes", json={"volumes": [{**volume, "subPath": path}]})
        assert response.status_code == 400, path
        assert f"subPath '{path}' is not in its volume, or is a link out of it" in response.json()["message"]
    # A link above the volume's root leads to that root.
    reader = create_sandbox(client, volumes=[{**volume, "subPath": "root"}])
    assert run_in_sandbox(client, reader, "ls /v") == ("absolute\nrelative\nroot", 0)
    for sandbox in (maker, reader):
        client.delete(f"/v1/sandboxes/{sandbox}")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 10_000, b'{"a": NaN}'])
def test_malformed_bodies_are_rejected(client: httpx.Client, content: bytes) -> None:
    response = client.post("/v1/sandboxes", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    assert response.json()["code"] == "INVALID_INPUT"


def test_unpaired_surrogates_are_rejected(client: httpx.Client) -> None:
    response = client.post(
        "/v1/sandboxes", content=rb'{"metadata": {"a": "\ud800"}}', headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 400


@pytest.mark.parametrize("query", ["page=0", "page=x", "pageSize=201", "metadata=broken", "page=99999999999999999999"])
def test_invalid_queries_are_rejected(client: httpx.Client, query: str) -> None:
    response = client.get(f"/v1/sandboxes?{query}")
    assert response.status_code == 400 and query.split("=")[0] in response.json()["message"]


@pytest.mark.parametrize("name", ["x", "%00", "..", "%2e%2e", "%ff", "a" * 5000, "'; drop table sandboxes; --"])
def test_invalid_ids_are_not_found(client: httpx.Client, name: str) -> None:
    for path in (f"/v1/sandboxes/{name}", f"/v1/snapshots/{name}", f"/v1/keys/{name}"):
        response = client.get(path)
        assert response.status_code in (200, 404), path
        if response.status_code == 200:
            assert name in ("..", "%2e%2e")
    assert client.get(f"/v1/sandboxes/{name}x/proxy/44772/ping").status_code == 404


def test_invalid_ports_are_rejected(client: httpx.Client, sandbox: str) -> None:
    for port in ("0", "65536", "x", "-1", "99999999"):
        assert client.get(f"/v1/sandboxes/{sandbox}/proxy/{port}/").status_code == 400
        assert client.get(f"/v1/sandboxes/{sandbox}/endpoints/{port}").status_code == 400


def test_unknown_routes_and_methods_are_rejected(client: httpx.Client) -> None:
    response = client.get("/v1/nothing")
    assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND")
    response = client.put("/v1/sandboxes")
    assert (response.status_code, response.json()["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert set(response.headers["Allow"].replace(" ", "").split(",")) & {"GET", "POST"}


def test_too_large_bodies_are_rejected(client: httpx.Client) -> None:
    large = json.dumps({"env": {"A": "x" * 100_000}}).encode()

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(large), 1000):
            yield large[start : start + 1000]

    for content in (large, pieces()):
        response = client.post("/v1/sandboxes", content=content, headers={"Content-Type": "application/json"})
        assert (response.status_code, response.json()["code"]) == (413, "TOO_LARGE"), response.text


def test_large_bodies_without_a_key_are_not_read(server: Server) -> None:
    address, port = server.domain.split(":")
    with socket.create_connection((address, int(port)), timeout=10) as raw:
        raw.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n{")
        assert raw.makefile("rb").readline().split()[1] == b"401"


def test_invalid_renewals_are_rejected(client: httpx.Client, sandbox: str) -> None:
    for moment in ("2001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "soon", 5, None):
        response = client.post(f"/v1/sandboxes/{sandbox}/renew-expiration", json={"expiresAt": moment})
        assert response.status_code == 400, moment
        assert "expiresAt" in response.json()["message"]
