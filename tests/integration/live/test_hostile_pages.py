"""A web page in a sandbox's browser reaches neither the sandbox's tools nor the browser that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live.screen_sandboxes import Sandbox, sandbox_of, screens_server
from tests.integration.live.web_sites import serve_site
from tests.support.server import Server, eventually, run_in_sandbox

DRIVEN = 9222
TOOLS = "http://127.0.0.1:8765/mcp"
PAGE = """<!doctype html><title>Harmless</title><p id=results>nothing yet</p><script>
const results = {};
const show = () => document.getElementById("results").textContent = "results " + JSON.stringify(results);
async function attempt(name, work) {
  try { results[name] = String(await work()); } catch (error) { results[name] = "refused"; }
}
const socket = address => new Promise((resolve, reject) => {
  const opened = new WebSocket(address);
  opened.onopen = () => resolve("opened");
  opened.onerror = () => reject(new Error("closed"));
});
(async () => {
  const call = {jsonrpc: "2.0", id: 1, method: "tools/call",
    params: {name: "run_shell_command", arguments: {command: "touch /tmp/taken"}}};
  await attempt("blind", () => fetch("TOOLS", {method: "POST", mode: "no-cors",
    headers: {"Content-Type": "text/plain"}, body: JSON.stringify(call)}).then(() => "sent"));
  await attempt("tools", () => fetch("TOOLS", {method: "POST", body: JSON.stringify(call)}).then(a => a.text()));
  await attempt("pages", () => fetch("http://127.0.0.1:9222/json").then(a => a.text()));
  const page = "http://127.0.0.1:9222/json/new?file:///etc/passwd";
  await attempt("new", () => fetch(page, {method: "PUT"}).then(a => a.text()));
  await attempt("devtools", () => socket("DEVTOOLS"));
  show();
})();
</script>"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "browser") as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.client() as client, sandbox_of(client, "browser") as made:
        yield made


def curl(client: httpx.Client, sandbox: Sandbox, words: str) -> str:
    return run_in_sandbox(client, sandbox.id, f"curl -s --noproxy '*' --max-time 10 {words}")[0]


def test_page_cannot_control_the_tools_or_the_browser(sandbox: Sandbox) -> None:
    # The page is even told the secret address, which it could not know.
    version_url = f"http://127.0.0.1:{DRIVEN}/json/version"
    devtools = json.loads(eventually(lambda: curl(sandbox.client, sandbox, version_url)))["webSocketDebuggerUrl"]
    site = serve_site(sandbox, page=PAGE.replace("TOOLS", TOOLS).replace("DEVTOOLS", devtools))
    sandbox.call("browser_navigate", url=f"{site}/page.html")
    text = eventually(lambda: (found := sandbox.text("browser_get_text")) and "results" in found and found)
    results = json.loads(str(text).partition("results ")[2].partition("}")[0] + "}")
    assert results.pop("blind") in ("sent", "refused")  # It cannot read the response.
    assert results == dict.fromkeys(("tools", "pages", "new", "devtools"), "refused")
    assert run_in_sandbox(sandbox.client, sandbox.id, "ls /tmp/taken")[1] != 0


def test_rebound_host_name_is_refused(sandbox: Sandbox) -> None:
    assert "passwd" not in curl(
        sandbox.client, sandbox, "-H 'Host: evil.example' -X PUT http://127.0.0.1:9222/json/new?x"
    )
    assert "webSocketDebuggerUrl" not in curl(
        sandbox.client, sandbox, "-H 'Host: evil.example' http://127.0.0.1:9222/json"
    )
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    for header in ("Host: evil.example:8765", "Origin: null", "Origin: http://127.0.0.1:8765"):
        response = json.loads(curl(sandbox.client, sandbox, f"-H '{header}' -d '{body}' {TOOLS}"))
        assert "web pages" in response["error"]["message"]
    assert "result" in json.loads(curl(sandbox.client, sandbox, f"-d '{body}' {TOOLS}"))
