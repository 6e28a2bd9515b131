"""The Vercel AI SDK refers to items of earlier answers instead of sending them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.contract.llm.agent_clis import INSTALLED
from tests.contract.llm.conftest import PROVIDERS
from tests.support.server import Server

CONVERSATION = Path(__file__).parents[2] / "clis" / "ai_sdk_conversation.mjs"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", ["script", *PROVIDERS])
def test_conversation_with_item_references(scripted: Server, front: Server, provider: str, stream: bool) -> None:
    server, model = (scripted, "look") if provider == "script" else (front, f"via-{provider}-look")
    if not (INSTALLED / "node_modules" / "ai").exists():
        pytest.fail("the AI SDK is not installed; run `make setup-test`")
    ended = subprocess.run(
        # From standard input, so that imports are found in the directory of the installed packages.
        [INSTALLED / "bin" / "node", "--input-type=module", "-"],
        input=CONVERSATION.read_text(),
        cwd=INSTALLED,
        env={
            "PATH": os.environ["PATH"],
            "BASE_URL": f"{server.url}/v1",
            "API_KEY": server.key,
            "MODEL": model,
            "STREAM": json.dumps(stream),
            "NO_PROXY": "127.0.0.1,localhost",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["texts"] == ["I see a tree.", "It is an oak."]
    assert result["references"] > 0
