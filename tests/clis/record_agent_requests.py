"""Record the requests of the agent programs: `python -m tests.clis.record_agent_requests`.

Run it after raising a version in package.json. Third-party prose is shortened; names, types and schemas are kept.
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

RECORDINGS_DIRECTORY = Path(__file__).parents[1] / "unit" / "llm" / "requests"
PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "opencode": "opencode-ai",
    "qwen": "@qwen-code/qwen-code",
    "gemini": "@google/gemini-cli",
}
GOAL = "Write first.txt and second.txt, please."
SCRIPT_TEXTS = (GOAL, "I look around", "A file is wanted", "first-is-there")
"""Parts of texts that come from the script and not from the program; such texts are kept."""
_IDENTITY = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DIGEST = re.compile(r"\b[0-9a-f]{40,}\b")
_TAG = re.compile(r"\s*<([A-Za-z][\w-]*)[\s>]")


class RequestShortener:
    """Remove personal data and third-party text from a request."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._identities: dict[str, str] = {}

    def shorten(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.shorten(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.shorten(each, field) for each in value]
        return self._shorten_text(value, field) if isinstance(value, str) else value

    def _shorten_text(self, text: str, field: str) -> str:
        text = text.replace(self._directory, "/home/user")
        text = _DIGEST.sub("0" * 64, _IDENTITY.sub(self._replace_identity, text))
        if any(each in text for each in SCRIPT_TEXTS) and len(text) < 600:
            return re.sub(r"(PGID|Chunk ID|Wall time): \S+", r"\1: 0", text)
        if field == "description":
            return "What it is for."
        if field == "user_id" or re.fullmatch(r"\S{0,60}|[^\n ]+( [^\n ]+){0,2}", text):
            return text
        replacement = "Working directory: /home/user/work" if "/home/user/work" in text else "Shortened."
        tag = _TAG.match(text)
        if tag is not None and text.rstrip().endswith(f"</{tag[1]}>"):
            return f"<{tag[1]}>\n{replacement}\n</{tag[1]}>"
        return replacement

    def _replace_identity(self, found: re.Match[str]) -> str:
        return self._identities.setdefault(found[0], f"00000000-0000-4000-8000-{len(self._identities) + 1:012d}")


def main() -> None:
    version = {
        cli: json.loads((INSTALLED / "node_modules" / package / "package.json").read_text())["version"]
        for cli, package in PACKAGES.items()
    }
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "work.yaml").write_text(json.dumps(SCRIPTS["work"]))
        provider = {"kind": "script", "file": str(directory / "work.yaml")}
        settings = {"llm": {"providers": {"work": provider}, "models": {"some-model": "work"}}}
        with run_server(directory, settings) as server, server.client() as client:
            for cli in LAUNCHERS:
                key = client.post("/v1/keys", json={"name": cli, "scopes": ["llm:use"], "session": cli}).json()
                program = AgentProgram(cli, directory / cli)
                program.start(server.url, key["secret"], "some-model", GOAL)
                program.wait(90)
                query: dict[str, Any] = {"session": cli}
                eventually(lambda query=query: len(client.get("/v1/exchanges", params=query).json()["items"]) >= 4)  # type: ignore[misc]
                exchanges = client.get("/v1/exchanges", params=query).json()["items"][::-1]
                shortener = RequestShortener(directory / cli)
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
                path = RECORDINGS_DIRECTORY / f"{cli}.json"
                path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
                sys.stdout.write(f"{path.name}: {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
