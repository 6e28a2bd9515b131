"""Programs in real sandboxes use credentials of the vault without ever having them."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from tests.support.server import Server, eventually, run_in_sandbox, run_server

HOST = "api.test"
SECRET = "s3cret-token-of-the-api"
CERTIFICATES = "/run/paddock/holes/certificates.pem"
SHOW_TRUST = f"""
import glob, os, ssl, subprocess
def count(**more):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(**more)
    return [str(each["subject"]) for each in context.get_ca_certs() if "Paddock" in str(each["subject"])]
for path in ("{CERTIFICATES}", "/etc/ssl/certs/ca-certificates.crt"):
    print(path, len(count(cafile=path)) if os.path.exists(path) else 0)
print("hashed", sum(not os.path.islink(path) for path in glob.glob("/etc/ssl/certs/*.0")))
"""
FIND_KEYS = """
import os
for top in ("/run/paddock", "/etc", "/opt", "/workspace", "/home", "/tmp", "/var"):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try:
                with open(path, "rb") as file:
                    content = file.read(2_000_000)
            except OSError:
                continue
            if b"PRIVATE KEY" in content and b"Paddock" in content or b"s3cret-token" in content:
                print("FOUND", path)
print("searched")
"""
JAVA = """
import java.net.*; import java.io.*;
public class Fetch { public static void main(String[] a) throws Exception {
  HttpURLConnection c = (HttpURLConnection) new URL(a[0]).openConnection();
  System.out.println(c.getResponseCode() + " " + new String(c.getInputStream().readAllBytes()));
} }
"""


class Api(BaseHTTPRequestHandler):
    """Answers with what it got of a credential, and echoes it."""

    protocol_version = "HTTP/1.1"
    seen: list[str | None]

    def do_GET(self) -> None:
        credential = self.headers.get("Authorization")
        type(self).seen.append(credential)
        body = json.dumps({"with": "credential" if credential else "nothing", "echo": credential}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def api(authority: trustme.CA) -> Iterator[ThreadingHTTPServer]:
    Api.seen = []
    site = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    site.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST, "other.test").configure_cert(context)
    site.socket = context.wrap_socket(site.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield site
    site.shutdown()
    site.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("vault")
    bundle = directory / "upstream.pem"
    authority.cert_pem.write_to_path(str(bundle))
    settings = {
        "network": {"private_targets": [HOST, "other.test"], "hosts": {HOST: "127.0.0.1", "other.test": "127.0.0.1"}},
        "outgoing": {"ca_bundle": str(bundle)},
    }
    with run_server(directory, settings) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as http_client:
        yield http_client


def create(client: httpx.Client, **body: Any) -> str:
    request = {"networkPolicy": {"egress": [{"action": "allow", "target": HOST}]}, **body}
    response = client.post("/v1/sandboxes", json=request)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def create_with_vault(client: httpx.Client, port: int, **body: Any) -> str:
    sandbox = create(client, credentialProxy={"enabled": True}, **body)
    vault = {
        "credentials": [{"name": "token", "source": {"value": SECRET}}],
        "bindings": [
            {
                "name": "api",
                "match": {"hosts": [HOST], "ports": [port], "paths": ["/v1/*"]},
                "auth": {"type": "bearer", "credential": "token"},
            }
        ],
    }
    created = client.post(f"/v1/sandboxes/{sandbox}/vault", json=vault)
    assert created.status_code == 201 and SECRET not in created.text, created.text
    return sandbox


def port_of(api: ThreadingHTTPServer) -> int:
    return int(api.server_address[1])


PYTHON = "import urllib.request as r, sys; print(r.urlopen(sys.argv[1], timeout=10).read().decode())"
NODE = (
    "require('https').get(process.argv[1], a => a.on('data', d => process.stdout.write(d)))"
    ".on('error', e => console.log(e.message))"
)
SYSTEM_STORE = "env -u SSL_CERT_FILE -u CURL_CA_BUNDLE -u REQUESTS_CA_BUNDLE -u NODE_EXTRA_CA_CERTS -u GIT_SSL_CAINFO"


@pytest.fixture(scope="module")
def sandbox(server: Server, api: ThreadingHTTPServer) -> str:
    with server.client() as client:
        return create_with_vault(client, port_of(api))


@pytest.mark.parametrize(
    "command",
    [
        f"python3 -c '{PYTHON}' URL",
        f"{SYSTEM_STORE} python3 -c '{PYTHON}' URL",
        "curl -sS URL",
        f"{SYSTEM_STORE} curl -sS URL",
        f"{SYSTEM_STORE} wget -qO- URL",
        f'node -e "{NODE}" URL',
        f"{SYSTEM_STORE} openssl s_client -brief -connect {HOST}:PORT -servername {HOST} -verify_return_error "
        "</dev/null && echo credential",
    ],
)
def test_programs_trust_the_authority_and_get_masked_echoes(
    client: httpx.Client, sandbox: str, api: ThreadingHTTPServer, command: str
) -> None:
    program = next(word for word in command.split() if word in ("python3", "curl", "wget", "node", "openssl"))
    if shutil.which(program) is None:
        pytest.skip(f"this machine has no {program}")
    Api.seen.clear()
    url = f"https://{HOST}:{port_of(api)}/v1/models"
    text, code = run_in_sandbox(client, sandbox, command.replace("URL", url).replace("PORT", str(port_of(api))))
    assert code == 0 and "credential" in text and SECRET not in text, text
    if program != "openssl":
        assert Api.seen == [f"Bearer {SECRET}"] and "Bearer ***" in text


@pytest.mark.parametrize(
    "command",
    ["python3 -m pip download --retries 0 --index-url URL no-such-package", "npm view --registry URL no-such-package"],
)
def test_package_managers_trust_the_authority(
    client: httpx.Client, sandbox: str, api: ThreadingHTTPServer, command: str
) -> None:
    Api.seen.clear()
    url = f"https://{HOST}:{port_of(api)}/v1/index/"
    text, code = run_in_sandbox(client, sandbox, f"cd /tmp; {command.replace('URL', url)}")
    if "No module named pip" in text or code == 127:
        pytest.skip(f"this machine has no {command.split()[0]} or pip")
    assert Api.seen[:1] == [f"Bearer {SECRET}"], text


@pytest.mark.skipif(shutil.which("java") is None, reason="this machine has no Java")
def test_java_trusts_the_authority(client: httpx.Client, sandbox: str, api: ThreadingHTTPServer) -> None:
    command = f"cd /tmp && cat > Fetch.java <<'EOF'\n{JAVA}\nEOF\njava Fetch.java https://{HOST}:{port_of(api)}/v1/java"
    text, code = run_in_sandbox(client, sandbox, command)
    assert code == 0 and '200 {"with": "credential"' in text and SECRET not in text, text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="this machine has no Chromium")
def test_chromium_trusts_the_authority(client: httpx.Client, sandbox: str, api: ThreadingHTTPServer) -> None:
    Api.seen.clear()
    command = "chromium --headless --no-sandbox --disable-gpu --user-data-dir=/tmp/profile --dump-dom URL 2>/dev/null"
    text, _ = run_in_sandbox(client, sandbox, command.replace("URL", f"https://{HOST}:{port_of(api)}/v1/page"))
    assert '"with": "credential"' in text and SECRET not in text, text
    assert Api.seen[0] == f"Bearer {SECRET}"


def test_other_hosts_and_paths_get_nothing(client: httpx.Client, sandbox: str, api: ThreadingHTTPServer) -> None:
    client.patch(f"/v1/sandboxes/{sandbox}/network", json={"allow": ["other.test"]})
    port = port_of(api)
    for url in (f"https://{HOST}:{port}/v2", f"https://other.test:{port}/v1/models"):
        text, _ = run_in_sandbox(client, sandbox, f"curl -sSk {url}")
        assert json.loads(text)["with"] == "nothing"


def test_sandbox_has_no_private_key_and_no_value(client: httpx.Client, sandbox: str) -> None:
    text, _ = run_in_sandbox(client, sandbox, f"python3 - <<'EOF'\n{FIND_KEYS}\nEOF")
    assert text == "searched"
    for path in ("/policy", "/credential-vault"):
        text, _ = run_in_sandbox(client, sandbox, f"curl -sS -m 5 http://127.0.0.1:18080{path}")
        assert "revision" not in text


def test_only_its_own_sandbox_trusts_an_authority(client: httpx.Client, sandbox: str, api: ThreadingHTTPServer) -> None:
    others = (create(client), create_with_vault(client, port_of(api)))
    for other, count in zip(others, (0, 1), strict=True):
        text, _ = run_in_sandbox(client, other, f"python3 - <<'EOF'\n{SHOW_TRUST}\nEOF")
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines())
        assert {int(value) for value in lines.values()} == {count}, text
    own, other = (
        run_in_sandbox(client, each, "cat /etc/ssl/certs/ca-certificates.crt | tail -20")[0]
        for each in (sandbox, others[1])
    )
    assert own != other


def test_changes_count_revisions_and_apply_at_once(client: httpx.Client, api: ThreadingHTTPServer) -> None:
    port = port_of(api)
    sandbox = create_with_vault(client, port)
    path = f"/v1/sandboxes/{sandbox}/vault"
    fetch = f"curl -sS https://{HOST}:{port}/v1/x"
    rotated = "rotated-value-of-token"
    change = {"credentials": {"replace": [{"name": "token", "source": {"value": rotated}}]}}
    refused = client.patch(path, json={"expectedRevision": 7, **change})
    assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT") and "revision 1" in refused.text
    changed = client.patch(path, json={"expectedRevision": 1, **change}).json()
    assert changed["revision"] == 2 and changed["credentials"] == [
        {"name": "token", "sourceType": "inline", "revision": 2}
    ]
    Api.seen.clear()
    run_in_sandbox(client, sandbox, fetch)
    assert Api.seen == [f"Bearer {rotated}"]
    assert client.delete(path).status_code == 204 and client.get(path).status_code == 404
    assert client.put(f"{path}/credentials/token", json={"value": SECRET}).json()["revision"] == 3
    binding = {
        "match": {"hosts": [HOST], "ports": [port]},
        "auth": {"type": "apiKey", "name": "X", "credential": "token"},
    }
    assert client.put(f"{path}/bindings/api", json=binding).json()["revision"] == 4
    in_use = client.delete(f"{path}/credentials/token")
    assert in_use.status_code == 400 and "there is no credential 'token'" in in_use.json()["message"]
    assert client.delete(f"{path}/bindings/api").json()["bindings"] == []
    assert client.delete(f"{path}/credentials/token", params={"expectedRevision": 1}).status_code == 409
    assert client.delete(f"{path}/credentials/token").json()["credentials"] == []
    events = client.get(f"/v1/sandboxes/{sandbox}/events", headers={"Accept": "application/json"}).text
    assert "vault.changed" in events and SECRET not in events and rotated not in events


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"credentials": {"add": [{"name": "a b", "source": {"value": SECRET}}]}}, "is no name"),
        ({"credentials": {"add": [{"name": "short", "source": {"value": "1234567"}}]}}, "8 to 8192 characters"),
        ({"credentials": {"add": [{"name": "line", "source": {"value": SECRET + "\n"}}]}}, "line break"),
        ({"credentials": {"add": [{"name": "crlf", "source": {"value": "value\r\nX: injected"}}]}}, "printable ASCII"),
        ({"credentials": {"add": [{"name": "token", "source": {"value": SECRET}}]}}, "exists already"),
        ({"credentials": {"replace": [{"name": "none", "source": {"value": SECRET}}]}}, "there is no 'none'"),
        ({"credentials": {"delete": ["token"]}}, "there is no credential 'token'"),
        ({"credentials": {"add": [{"name": "x", "source": {"type": "env", "value": SECRET}}]}}, "source.type"),
        ({"bindings": {"add": [{"match": {"hosts": ["*"]}}]}}, "'*' is invalid"),
        ({"bindings": {"add": [{"match": {"hosts": ["*.com"]}}]}}, "at least two labels"),
        ({"bindings": {"add": [{"match": {"hosts": ["10.0.0.1"]}}]}}, "is invalid"),
        ({"bindings": {"add": [{"match": {"paths": ["v1"]}}]}}, "begin with /"),
        ({"bindings": {"add": [{"auth": {"type": "bearer", "credential": "none"}}]}}, "no credential 'none'"),
        ({"bindings": {"add": [{"auth": {"type": "basic", "credential": "token"}}]}}, "base64 of USER:PASSWORD"),
        ({"bindings": {"add": [{"auth": {"type": "apiKey", "credential": "token"}}]}}, "name of a header"),
        ({"bindings": {"add": [{"auth": {"type": "apiKey", "credential": "token", "name": "Host"}}]}}, "cannot be"),
        ({"bindings": {"add": [{"auth": {"type": "customHeaders", "headers": []}}]}}, "needs headers"),
        ({"bindings": {"add": [{"auth": {"type": "passthrough"}}]}}, "placeholders in requests are not replaced"),
        ({}, "changes nothing"),
    ],
)
def test_invalid_changes_are_refused_without_showing_values(
    client: httpx.Client, sandbox: str, change: dict[str, Any], message: str
) -> None:
    for binding in change.get("bindings", {}).get("add", []):
        binding.setdefault("name", "new")
        binding["match"] = {"hosts": [HOST], **binding.get("match", {})}
        binding.setdefault("auth", {"type": "bearer", "credential": "token"})
    path = f"/v1/sandboxes/{sandbox}/vault"
    revision = client.get(path).json()["revision"]
    refused = client.patch(path, json=change)
    assert refused.status_code == 400 and message in refused.json()["message"], refused.text
    assert SECRET not in refused.text and "injected" not in refused.text
    assert client.get(path).json()["revision"] == revision


def test_vault_must_be_enabled_at_creation(client: httpx.Client) -> None:
    sandbox = create(client)
    for path in (f"/v1/sandboxes/{sandbox}/vault", f"/v1/sandboxes/{sandbox}/proxy/18080/credential-vault"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (412, "VAULT_DISABLED")
    pooled = client.post("/v1/sandboxes", json={"credentialProxy": {"enabled": True}, "extensions": {"poolRef": "x"}})
    assert pooled.status_code in (400, 404)


def test_vault_outlives_a_killed_server_and_ends_with_its_sandbox(
    server: Server, client: httpx.Client, api: ThreadingHTTPServer
) -> None:
    port = port_of(api)
    sandbox = create_with_vault(client, port)
    fetch = f"curl -sS https://{HOST}:{port}/v1/x"
    before, _ = run_in_sandbox(client, sandbox, fetch)
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as again:
        Api.seen.clear()
        assert run_in_sandbox(again, sandbox, fetch)[0] == before
        assert Api.seen == [f"Bearer {SECRET}"]
        assert again.get(f"/v1/sandboxes/{sandbox}/vault").json()["revision"] == 1
        stored = b"".join(path.read_bytes() for path in server.data.glob("paddock.db*"))
        assert sandbox.encode() in stored and SECRET.encode() not in stored and b"PRIVATE KEY" not in stored
        assert (server.data / "vault.key").stat().st_mode & 0o777 == 0o600
        again.delete(f"/v1/sandboxes/{sandbox}")
        assert again.get(f"/v1/sandboxes/{sandbox}/vault").status_code == 404
        query = f"SELECT count(*) FROM credential_vaults WHERE sandbox = '{sandbox}'"
        eventually(lambda: _query_database(server.data / "paddock.db", query) == 0)
    assert SECRET not in server.log() and "Bearer s3" not in server.log()


def _query_database(path: Path, query: str) -> Any:
    import sqlite3

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return connection.execute(query).fetchone()[0]


def test_root_of_a_sandbox_trusts_the_authority_and_can_update_the_store(
    client: httpx.Client, api: ThreadingHTTPServer
) -> None:
    sandbox = create_with_vault(client, port_of(api), user="root")
    text, code = run_in_sandbox(client, sandbox, f"{SYSTEM_STORE} curl -sS https://{HOST}:{port_of(api)}/v1/x")
    assert code == 0 and "credential" in text, text
    text, code = run_in_sandbox(
        client, sandbox, "cp /etc/ssl/certs/ca-certificates.crt /tmp/c && mv /tmp/c /etc/ssl/certs/ca-certificates.crt"
    )
    assert code == 0, text
