"""A browser uses a site of this machine by name: HTTP/2, a video, a WebSocket, a download, and a private authority."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from tests.integration.live.screen_sandboxes import Sandbox, sandbox_of, screens_server
from tests.support.server import Server, eventually, run_in_sandbox

NAME = "cinema.test"
SITE_PROGRAM = Path(__file__).with_name("tls_site.mjs")
ROOT = Path(__file__).parents[3]
TICKET_BYTES = 1_500_000


@dataclass
class TlsSite:
    """A site with a certificate of a private authority."""

    port: int
    authority: Path

    @property
    def address(self) -> str:
        return f"https://{NAME}:{self.port}/"

    @property
    def rule(self) -> str:
        return f"allow {NAME}:{self.port}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsSite]:
    directory = tmp_path_factory.mktemp("site")
    authority, other = trustme.CA(), trustme.CA()
    certificate = authority.issue_cert(NAME)
    certificate.private_key_pem.write_to_path(str(directory / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(directory / "certificate.pem"))
    bundle = directory / "company.pem"
    bundle.write_bytes(other.cert_pem.bytes() + authority.cert_pem.bytes())
    node = shutil.which("node") or str(ROOT / ".make/clis/bin/node")
    words = [node, str(SITE_PROGRAM), str(directory / "key.pem"), str(directory / "certificate.pem")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield TlsSite(int(process.stdout.readline()), bundle)
        process.kill()


def serve(directory: Path, **settings: Any) -> Any:
    network = {"private_targets": [NAME], "hosts": {NAME: "127.0.0.1"}}
    return screens_server(directory, "browser", "linux", network=network, **settings)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, site: TlsSite) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("paddock"), outgoing={"ca_bundle": str(site.authority)}) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as http_client:
        yield http_client


def connections(client: httpx.Client, sandbox: Sandbox) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"{sandbox.path}/connections").json()["items"]
    return found


def test_site_works_as_in_any_browser(client: httpx.Client, site: TlsSite) -> None:
    with sandbox_of(client, "browser", network=[site.rule]) as sandbox:
        assert "The cinema" in sandbox.text("browser_navigate", url=site.address)

        def waits_for() -> list[str]:
            text = sandbox.text("browser_get_text")
            return [each for each in ("HTTP/2.0", "seeked in true", "echo ping") if each not in text]

        eventually(lambda: waits_for() == [], 30)
        sandbox.call("browser_click", text="Ticket")
        saved = sandbox.call("browser_downloads", wait=True)["structuredContent"]["downloads"][-1]
        assert run_in_sandbox(client, sandbox.id, f"stat -c %s '{saved['path']}'")[0] == str(TICKET_BYTES)
        # Nothing else was contacted: the browser makes no requests of its own.
        seen = connections(client, sandbox)
        assert {(record["name"], record["port"]) for record in seen} == {(NAME, site.port)}
        assert all(record["serverName"] == NAME for record in seen if record["receivedBytes"])


def test_authority_is_trusted_by_programs_of_a_desktop(client: httpx.Client, site: TlsSite) -> None:
    fetch = f"python3 -c 'import urllib.request as r; print(r.urlopen(\"{site.address}hello\").read())'"
    with sandbox_of(client, "linux", network=[site.rule]) as sandbox:
        assert "HTTP/1.1" in run_in_sandbox(client, sandbox.id, fetch)[0]
        denied = fetch.replace(str(site.port), "443")
        assert "access denied" in run_in_sandbox(client, sandbox.id, denied)[0].lower()
        (record,) = [each for each in connections(client, sandbox) if each["decision"] == "denied"]
        assert f"`allow {NAME}:443`" in record["message"]


def test_denied_site_is_named_with_its_rule(client: httpx.Client, site: TlsSite) -> None:
    """The browser shows that the connection was refused; the reason and the rule are in the sandbox's connections."""
    with sandbox_of(client, "browser", network="none") as sandbox:
        # A failed connection makes browsers look for a captive portal; this one must send no such request.
        for _ in range(3):
            sandbox.post("browser_navigate", {"url": site.address})
        record = eventually(lambda: connections(client, sandbox))[0]
        assert record["refusal"] == "no_rule" and f"`{site.rule}`" in record["message"]
        assert {each["name"] for each in connections(client, sandbox)} == {NAME}
        client.patch(f"{sandbox.path}/network", json={"allow": [f"{NAME}:{site.port}"]}).raise_for_status()
        assert "The cinema" in sandbox.text("browser_navigate", url=site.address)


def test_browser_without_the_authority_refuses_the_certificate(
    tmp_path_factory: pytest.TempPathFactory, site: TlsSite
) -> None:
    with (
        serve(tmp_path_factory.mktemp("without")) as server,
        server.client() as client,
        sandbox_of(client, "browser", network=[site.rule]) as sandbox,
    ):
        assert "ERR_CERT_AUTHORITY_INVALID" in sandbox.fails("browser_navigate", url=site.address)
        # Browsers look for a captive portal then; this one must not. Only a wait can show that no request comes.
        assert run_in_sandbox(client, sandbox.id, "sleep 4")[1] == 0
        assert {record["name"] for record in connections(client, sandbox)} == {NAME}
