"""Records anew what the agent programs send: `python -m tests.clis.record`, after raising a version in package.json.

Their prose is theirs, so it is shortened; names, types and schemas are what the tests are about, and stay.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.contract.llm.agent_clis import INSTALLED, LAUNCHERS, AgentProgram
from tests.contract.llm.cli_scripts import SCRIPTS
from tests.support.server import eventually, run_server

RECORDED = Path(__file__).parents[1] / "unit" / "llm" / "requests"
PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "opencode": "opencode-ai",
    "qwen": "@qwen-code/qwen-code",
    "gemini": "@google/gemini-cli",
}
GOAL = "Write first.txt and second.txt, please."
OURS = (GOAL, "I look around", "A file is wanted", "first-is-there")
"""By these the texts are known that come from the scenario and not from the program."""
_IDENTITY = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DIGEST = re.compile(r"\b[0-9a-f]{40,}\b")
_TAG = re.compile(r"\s*<([A-Za-z][\w-]*)[\s>]")


class Shortener:
    """Remove personal data and third-party text from a request."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._known: dict[str, str] = {}

    def shorten(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.shorten(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.shorten(each, field) for each in value]
        return self._text(value, field) if isinstance(value, str) else value

    def _text(self, text: str, field: str) -> str:
        text = text.replace(self._directory, "/home/user")
        text = _DIGEST.sub("0" * 64, _IDENTITY.sub(self._identity, text))
        if any(each in text for each in OURS) and len(text) < 600:
            return re.sub(r"(PGID|Chunk ID|Wall time): \S+", r"\1: 0", text)
        if field == "description":
            return "What it is for."
        if field == "user_id" or re.fullmatch(r"\S{0,60}|[^\n ]+( [^\n ]+){0,2}", text):
            return text
        where = "Working directory: /home/user/work" if "/home/user/work" in text else "Shortened."
        tag = _TAG.match(text)
        if tag is not None and text.rstrip().endswith(f"</{tag[1]}>"):
            return f"<{tag[1]}>\n{where}\n</{tag[1]}>"
        return where

    def _identity(self, found: re.Match[str]) -> str:
        return self._known.setdefault(found[0], f"00000000-0000-4000-8000-{len(self._known) + 1:012d}")


def main() -> None:
    version = {
        cli: json.loads((INSTALLED / "node_modules" / package / "package.json").read_text())["version"]
        for cli, package in PACKAGES.items()
    }
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        (directory / "work.yaml").write_text(json.dumps(SCRIPTS["work"]))
        provider = {"kind": "script", "file": str(directory / "work.yaml")}
        settings = {"llm": {"providers": {"work": provider}, "models": {"some-model": "work"}}}
        with run_server(directory, settings) as server, server.client() as client:
            for cli in LAUNCHERS:
                key = client.post("/v1/keys", json={"name": cli, "scopes": ["llm:use"], "session": cli}).json()
                program = AgentProgram(cli, directory / cli)
                program.start(server.url, key["secret"], "some-model", GOAL)
                program.wait(90)
                asked: dict[str, Any] = {"session": cli}
                eventually(lambda asked=asked: len(client.get("/v1/exchanges", params=asked).json()["items"]) >= 4)  # type: ignore[misc]
                exchanges = client.get("/v1/exchanges", params=asked).json()["items"][::-1]
                shortener = Shortener(directory / cli)
                first, second = (
                    shortener.shorten(client.get(f"/v1/exchanges/{each['id']}", params={"raw": "request"}).json())
                    for each in exchanges[:2]
                )
                document = {
                    "client": f"{PACKAGES[cli]} {version[cli]}",
                    "format": exchanges[0]["format"],
                    "first": first,
                    "then": {name: value for name, value in second.items() if first.get(name) != value},
                }
                path = RECORDED / f"{cli}.json"
                path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
                sys.stdout.write(f"{path.name}: {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
