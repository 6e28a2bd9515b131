"""A small web site that a sandbox serves to its own browser: nothing beyond the sandbox is reached."""

from __future__ import annotations

from tests.integration.live.screen_sandboxes import Sandbox
from tests.support.server import eventually

PORT = 8000
GREEN = (0, 160, 80)
FORM = """<!doctype html><meta charset=utf-8><title>Order</title>
<meta name=viewport content="width=device-width">
<form action=done.html>
<p><label>Name <input name=name></label>
<p><label>Amount <input name=amount type=number></label>
<p><label>Colour <select name=colour><option>red<option>green</select></label>
<p><button>Send it</button>
</form>"""
DONE = """<!doctype html><meta charset=utf-8><title>Done</title>
<body style="margin:0;background:rgb(0,160,80);color:white;font:24px sans-serif"><p id=result></p>
<script>
const said = new URLSearchParams(location.search);
document.getElementById("result").textContent =
  `Thank you, ${said.get("name")}: ${said.get("amount")} in ${said.get("colour")}`;
</script>"""
PHONE = """<!doctype html><meta charset=utf-8><title>Shop</title>
<meta name=viewport content="width=device-width,initial-scale=1">
<style>body{margin:0;font:20px sans-serif}.row{height:300px;border-bottom:1px solid #888;padding:10px}
button{font-size:20px;padding:16px}</style>
<button id=open onclick="document.getElementById('menu').textContent='the menu is open'">Menu</button><p id=menu></p>
<script>
for (let row = 1; row <= 12; row++) document.write(`<div class=row>row ${row}</div>`);
</script>
<p><input id=note placeholder="Your note" style="font-size:20px;width:90%">
<p id=echo></p><div style="height:200px"></div>
<script>
document.getElementById("note").addEventListener("input", event =>
  document.getElementById("echo").textContent = "noted: " + event.target.value);
</script>"""


def serve_site(sandbox: Sandbox, **pages: str) -> str:
    """Serve these pages in the sandbox, and return their address."""
    for name, content in pages.items():
        sandbox.call("write_file", path=f"/tmp/site/{name}.html", content=content)
    sandbox.call(
        "run_shell_command",
        command=f"cd /tmp/site && nohup python3 -m http.server {PORT} --bind 127.0.0.1 >/dev/null 2>&1 </dev/null &",
    )
    check = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {PORT}), 1)\" && echo up"
    eventually(lambda: "up" in sandbox.text("run_shell_command", command=check + " || true").split())
    return f"http://127.0.0.1:{PORT}"
