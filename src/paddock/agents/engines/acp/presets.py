"""The agent programs that can be talked to, and how each is started.

They find the proxy through the variables that every sandbox has. Whatever else they would do outside is switched off,
and each asks before it changes anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paddock.errors import InvalidInput

LLM_URL = "http://127.0.0.1:8421"
"""Where the proxy is in every box."""


@dataclass(frozen=True)
class Program:
    """An agent program that speaks ACP."""

    name: str
    image: str
    command: Callable[[str], tuple[str, ...]]
    """What starts it, for a model."""
    env: Callable[[str], Mapping[str, str]] = lambda model: {}
    files: Callable[[str], Mapping[str, str]] = field(default=lambda model: {})
    """What it reads at its start, by path below its home."""
    asides: tuple[str, ...] = ()
    """How pieces of text begin that are not meant for people."""
    leaves_children: bool = False
    """Whether commands go on that it had started when it was told to stop."""


def _claude() -> Program:
    return Program(
        name="claude-code",
        image="agent-claude-code",
        command=lambda model: ("claude-agent-acp",),
        env=lambda model: {
            "ANTHROPIC_MODEL": model,
            "ANTHROPIC_SMALL_FAST_MODEL": model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_EXECUTABLE": "/usr/local/bin/claude",
            # The proxy tries again by itself; this would take minutes.
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
    )


def _codex() -> Program:
    settings = "\n".join(
        (
            'model_provider = "paddock"',
            "model = {model}",
            # What changes something is asked about; it has no longer a policy that asks about every command.
            'approval_policy = "on-request"',
            'approvals_reviewer = "user"',
            'sandbox_mode = "read-only"',
            "check_for_update_on_startup = false",
            "analytics = {{enabled = false}}",
            f'model_providers.paddock = {{{{name = "paddock", base_url = "{LLM_URL}/v1", '
            'env_key = "PADDOCK_LLM_KEY", wire_api = "responses"}}',
            "",
        )
    )
    return Program(
        name="codex",
        image="agent-codex",
        command=lambda model: ("codex-acp",),
        env=lambda model: {
            "CODEX_PATH": "/usr/local/bin/codex",
            # In its usual mode a model decides what may be done, in place of a person.
            "INITIAL_AGENT_MODE": "read-only",
            "NO_BROWSER": "1",
        },
        files=lambda model: {".codex/config.toml": settings.format(model=json.dumps(model))},
        # It says this of every model that is not in its own list.
        asides=("Warning: Model metadata for",),
        leaves_children=True,
    )


def _gemini() -> Program:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return Program(
        name="gemini-cli",
        image="agent-gemini-cli",
        command=lambda model: ("gemini", "--acp", "-m", model, "--skip-trust"),
        env=lambda model: {"GEMINI_CLI_NO_RELAUNCH": "true"},
        files=lambda model: {".gemini/settings.json": _json(settings)},
    )


def _opencode() -> Program:
    def settings(model: str) -> Mapping[str, str]:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "paddock",
            "options": {"baseURL": f"{LLM_URL}/v1", "apiKey": "{env:PADDOCK_LLM_KEY}"},
            "models": {model: {"name": model, "limit": {"context": 128000, "output": 8192}}},
        }
        return {
            ".config/opencode/opencode.json": _json(
                {
                    "model": f"paddock/{model}",
                    "small_model": f"paddock/{model}",
                    "autoupdate": False,
                    "share": "disabled",
                    "permission": {"bash": "ask", "edit": "ask", "webfetch": "ask"},
                    "provider": {"paddock": provider},
                }
            )
        }

    return Program(
        name="opencode",
        image="agent-opencode",
        command=lambda model: ("opencode", "acp"),
        env=lambda model: {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        files=settings,
    )


def _qwen() -> Program:
    settings = {
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
        "memory": {"enableManagedAutoMemory": False},
    }
    return Program(
        name="qwen-code",
        image="agent-qwen-code",
        command=lambda model: ("qwen", "--acp", "--auth-type", "openai"),
        env=lambda model: {"OPENAI_MODEL": model, "QWEN_CODE_NO_RELAUNCH": "1"},
        files=lambda model: {".qwen/settings.json": _json(settings)},
    )


PROGRAMS: Mapping[str, Program] = {
    program.name: program for program in (_claude(), _codex(), _gemini(), _opencode(), _qwen())
}


def program_of(agent: str, programs: Mapping[str, Program] = PROGRAMS) -> Program:
    """The program of that name. Raises `InvalidInput`, which lists all."""
    if agent not in programs:
        raise InvalidInput(f"there is no agent program {agent[:100]!r}; there are {', '.join(sorted(programs))}")
    return programs[agent]


def _json(tree: Any) -> str:
    return json.dumps(tree, indent=1) + "\n"
