"""Start agent programs so that each performs one task through the proxy and exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

INSTALLED = Path(__file__).parents[3] / ".make" / "clis"
PROGRAMS = INSTALLED / "node_modules" / ".bin"
UNREACHABLE = "http://127.0.0.1:9"
"""Address for all other hosts: connections fail at once, because nothing listens there."""


@dataclass(frozen=True)
class LaunchCommand:
    """Arguments, environment variables and home directory files of a program."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramResult:
    """Result of a finished or stopped program."""

    code: int | None
    """Exit code; `None` if the program had to be stopped."""
    output: str
    errors: str

    @property
    def model_text(self) -> str:
        """Text of the model as reported by the program, possibly in pieces."""
        lines = [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]
        return "".join(_texts(lines))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in ("text", "content") and isinstance(each, str):
                yield each
            else:
                yield from _texts(each)


def _claude(url: str, key: str, model: str, goal: str) -> LaunchCommand:
    return LaunchCommand(
        ("-p", goal, "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions", "--model", model),
        {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": key,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        },
    )


def _codex(url: str, key: str, model: str, goal: str) -> LaunchCommand:
    provider = f'{{name="proxy",base_url="{url}/v1",env_key="PROXY_API_KEY",wire_api="responses"}}'
    settings = (
        "model_provider=proxy",
        f"model_providers.proxy={provider}",
        "analytics.enabled=false",
        "check_for_update_on_startup=false",
    )
    return LaunchCommand(
        (
            *("exec", "--json", "--ephemeral", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
            *("-m", model, *(word for setting in settings for word in ("-c", setting))),
            *("--disable", "plugins", "--disable", "apps", goal),
        ),
        {"PROXY_API_KEY": key},
    )


def _opencode(url: str, key: str, model: str, goal: str) -> LaunchCommand:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "proxy",
        "options": {"baseURL": f"{url}/v1", "apiKey": "{env:PROXY_API_KEY}"},
        "models": {model: {"name": model, "limit": {"context": 128000, "output": 8192}}},
    }
    settings = {
        "model": f"proxy/{model}",
        "small_model": f"proxy/{model}",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"*": "allow"},
        "provider": {"proxy": provider},
    }
    return LaunchCommand(
        ("run", "--pure", "--title", "a title", "--format", "json", goal),
        {
            "PROXY_API_KEY": key,
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        },
    )


def _qwen(url: str, key: str, model: str, goal: str) -> LaunchCommand:
    settings = {
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
        "memory": {"enableManagedAutoMemory": False},
    }
    return LaunchCommand(
        ("--auth-type", "openai", "-y", "-o", "stream-json", goal),
        {
            "QWEN_CODE_NO_RELAUNCH": "1",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": key,
            "OPENAI_MODEL": model,
            # It uses its proxy even for hosts in NO_PROXY.
            "HTTP_PROXY": "",
            "HTTPS_PROXY": "",
        },
        {".qwen/settings.json": settings},
    )


def _gemini(url: str, key: str, model: str, goal: str) -> LaunchCommand:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return LaunchCommand(
        ("-m", model, "-y", "--skip-trust", "-o", "stream-json", "-p", goal),
        {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_API_KEY": key, "GOOGLE_GEMINI_BASE_URL": url},
        {".gemini/settings.json": settings},
    )


LAUNCHERS: dict[str, Callable[[str, str, str, str], LaunchCommand]] = {
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
    "qwen": _qwen,
    "gemini": _gemini,
}


class AgentProgram:
    """An agent program with its own home and working directory."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.home = directory / "home"
        self.work = directory / "work"
        self.scratch = directory / "tmp"
        for each in (self.home, self.work, self.scratch):
            each.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, url: str, key: str, model: str, goal: str) -> None:
        program = PROGRAMS / self.name
        if not program.exists():
            pytest.fail(f"{self.name} is not installed; run `make setup-test`")
        started = LAUNCHERS[self.name](url, key, model, goal)
        for path, document in started.files.items():
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_text(json.dumps(document))
        environment = {
            "PATH": f"{INSTALLED / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "TMPDIR": str(self.scratch),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "HTTP_PROXY": UNREACHABLE,
            "HTTPS_PROXY": UNREACHABLE,
            "NO_PROXY": "127.0.0.1,localhost",
            **started.environment,
        }
        with (self.scratch / "output").open("w") as output, (self.scratch / "errors").open("w") as errors:
            self._process = subprocess.Popen(
                [program, *started.arguments],
                cwd=self.work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def wait(self, timeout: float) -> ProgramResult:
        """Wait for the program and return its result; stop it after the timeout."""
        assert self._process is not None
        code: int | None
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            self.stop()
        return ProgramResult(code, (self.scratch / "output").read_text(), (self.scratch / "errors").read_text())

    def stop(self) -> None:
        """Kill the program and all its child processes."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait(10)
