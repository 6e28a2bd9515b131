"""A web page in a sandbox's browser reaches neither the sandbox's tools nor the browser that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live.boxes import Box, box_of, screens_server
from tests.integration.live.sites import serve_site
from tests.serving import Server, eventually, run

DRIVEN = 9222
TOOLS = "http://127.0.0.1:8765/mcp"
PAGE = """<!doctype html><title>Harmless</title><p id=said>nothing yet</p><script>
const said = {};
const tell = () => document.getElementById("said").textContent = "said " + JSON.stringify(said);
async function attempt(name, work) {
  try { said[name] = String(await work()); } catch (error) { said[name] = "refused"; }
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
  tell();
})();
</script>"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "browser") as running:
        yield running


@pytest.fixture(scope="module")
def box(server: Server) -> Iterator[Box]:
    with server.client() as client, box_of(client, "browser") as made:
        yield made


def curl(client: httpx.Client, box: Box, words: str) -> str:
    return run(client, box.id, f"curl -s --noproxy '*' --max-time 10 {words}")[0]


def test_a_page_takes_over_neither_the_tools_nor_the_browser(box: Box) -> None:
    # The page is even told the secret address, which it could not know.
    asked = f"http://127.0.0.1:{DRIVEN}/json/version"
    devtools = json.loads(eventually(lambda: curl(box.client, box, asked)))["webSocketDebuggerUrl"]
    site = serve_site(box, page=PAGE.replace("TOOLS", TOOLS).replace("DEVTOOLS", devtools))
    box.call("browser_navigate", url=f"{site}/page.html")
    text = eventually(lambda: (found := box.text("browser_get_text")) and "said" in found and found)
    said = json.loads(str(text).partition("said ")[2].partition("}")[0] + "}")
    assert said.pop("blind") in ("sent", "refused")  # It learns nothing of what became of it.
    assert said == dict.fromkeys(("tools", "pages", "new", "devtools"), "refused")
    assert run(box.client, box.id, "ls /tmp/taken")[1] != 0


def test_a_name_that_leads_to_the_box_is_not_answered(box: Box) -> None:
    assert "passwd" not in curl(box.client, box, "-H 'Host: evil.example' -X PUT http://127.0.0.1:9222/json/new?x")
    assert "webSocketDebuggerUrl" not in curl(box.client, box, "-H 'Host: evil.example' http://127.0.0.1:9222/json")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    for header in ("Host: evil.example:8765", "Origin: null", "Origin: http://127.0.0.1:8765"):
        said = json.loads(curl(box.client, box, f"-H '{header}' -d '{body}' {TOOLS}"))
        assert "web pages" in said["error"]["message"]
    assert "result" in json.loads(curl(box.client, box, f"-d '{body}' {TOOLS}"))
