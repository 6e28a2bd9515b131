"""The supported agent programs, and how each is started.

Programs reach the model proxy through the environment variables of every sandbox. All other network access is disabled,
and each program asks for permission before it changes anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paddock.errors import InvalidInput

LLM_URL = "http://127.0.0.1:8421"
"""Address of the model proxy in every sandbox."""


@dataclass(frozen=True)
class AgentProgram:
    """An agent program that speaks ACP."""

    name: str
    image: str
    command: Callable[[str], tuple[str, ...]]
    """Returns the command line for a model."""
    env: Callable[[str], Mapping[str, str]] = lambda model: {}
    files: Callable[[str], Mapping[str, str]] = field(default=lambda model: {})
    """Returns configuration files for a model, by path below the home directory."""
    hidden_prefixes: tuple[str, ...] = ()
    """Prefixes of text that is not shown to people."""
    leaves_children: bool = False
    """Whether started commands keep running after a cancel request."""


def _claude_code() -> AgentProgram:
    return AgentProgram(
        name="claude-code",
        image="agent-claude-code",
        command=lambda model: ("claude-agent-acp",),
        env=lambda model: {
            "ANTHROPIC_MODEL": model,
            "ANTHROPIC_SMALL_FAST_MODEL": model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_EXECUTABLE": "/usr/local/bin/claude",
            # The proxy retries itself; retries of the program would take minutes.
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
    )


def _codex() -> AgentProgram:
    settings = "\n".join(
        (
            'model_provider = "paddock"',
            "model = {model}",
            # Asks before changes; there is no longer a policy that asks about every command.
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
    return AgentProgram(
        name="codex",
        image="agent-codex",
        command=lambda model: ("codex-acp",),
        env=lambda model: {
            "CODEX_PATH": "/usr/local/bin/codex",
            # In its default mode a model decides about approvals instead of a person.
            "INITIAL_AGENT_MODE": "read-only",
            "NO_BROWSER": "1",
        },
        files=lambda model: {".codex/config.toml": settings.format(model=json.dumps(model))},
        # Codex warns about every model that is not in its own list.
        hidden_prefixes=("Warning: Model metadata for",),
        leaves_children=True,
    )


def _gemini_cli() -> AgentProgram:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return AgentProgram(
        name="gemini-cli",
        image="agent-gemini-cli",
        command=lambda model: ("gemini", "--acp", "-m", model, "--skip-trust"),
        env=lambda model: {"GEMINI_CLI_NO_RELAUNCH": "true"},
        files=lambda model: {".gemini/settings.json": _json(settings)},
    )


def _opencode() -> AgentProgram:
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

    return AgentProgram(
        name="opencode",
        image="agent-opencode",
        command=lambda model: ("opencode", "acp"),
        env=lambda model: {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        files=settings,
    )


def _qwen_code() -> AgentProgram:
    settings = {
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
        "memory": {"enableManagedAutoMemory": False},
    }
    return AgentProgram(
        name="qwen-code",
        image="agent-qwen-code",
        command=lambda model: ("qwen", "--acp", "--auth-type", "openai"),
        env=lambda model: {"OPENAI_MODEL": model, "QWEN_CODE_NO_RELAUNCH": "1"},
        files=lambda model: {".qwen/settings.json": _json(settings)},
    )


AGENT_PROGRAMS: Mapping[str, AgentProgram] = {
    program.name: program for program in (_claude_code(), _codex(), _gemini_cli(), _opencode(), _qwen_code())
}


def find_agent_program(agent: str, programs: Mapping[str, AgentProgram] = AGENT_PROGRAMS) -> AgentProgram:
    """Return the program of an agent. Raises `InvalidInput`, which lists all programs."""
    if agent not in programs:
        raise InvalidInput(f"there is no agent program {agent[:100]!r}; available: {', '.join(sorted(programs))}")
    return programs[agent]


def _json(tree: Any) -> str:
    return json.dumps(tree, indent=1) + "\n"
