"""Tools and screens outlive the server: the next one serves the sandboxes it finds."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.live.screen_sandboxes import Sandbox, screens_server
from tests.support.server import eventually, run_in_sandbox

LIST = (
    "import json, urllib.request as r; "
    'body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode(); '
    'asked = r.Request("http://127.0.0.1:8765/mcp", body); '
    'print(len(json.load(r.build_opener(r.ProxyHandler({})).open(asked, timeout=20))["result"]["tools"]))'
)


def test_a_new_server_serves_tools_and_watches_screens_again(tmp_path: Path) -> None:
    with screens_server(tmp_path, "linux") as server:
        with server.client() as client:
            made = client.post("/v1/sandboxes", json={"extensions": {"paddock.kind": "linux"}}).json()["id"]
            sandbox = Sandbox(client, made)
            eventually(lambda: sandbox.events("desktop.started"))
            sandbox.call("move_mouse", x=321, y=123)
        server.stop(signal.SIGKILL)
        server.start()
        with server.client() as client:
            sandbox = Sandbox(client, made)
            position = sandbox.call("get_cursor_position")["structuredContent"]
            assert (position["x"], position["y"]) == (321, 123)
            count, code = run_in_sandbox(client, made, f"python3 -c '{LIST}'")
            assert code == 0 and int(count) > 20
            run_in_sandbox(client, made, "kill -9 $(pidof Xvnc)")
            eventually(lambda: sandbox.events("desktop.stopped"))
            eventually(lambda: len(sandbox.events("desktop.started")) == 2)
