"""Parses values of arguments and options, such as durations, variables and volumes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from paddock.cli.output.errors import UsageError

DEFAULT_NETWORK = "default"
"""Word for the network policy of each kind of sandbox."""


def parse_assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parse `K=V` pairs; the last value of a name wins."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} {text!r} is not NAME=VALUE")
        found[name] = value
    return found


def parse_environment(texts: Iterable[str], files: Iterable[Path] = ()) -> dict[str, str]:
    """Return variables from files, then from `K=V`; `K` alone takes its value from this shell."""
    import os

    found: dict[str, str] = {}
    for path in files:
        found |= read_env_file(path)
    for text in texts:
        if "=" not in text:
            if text not in os.environ:
                raise UsageError(f"--env {text}: this variable is not set here; write NAME=VALUE")
            text = f"{text}={os.environ[text]}"
        found |= parse_assignments([text], "--env")
    return found


def read_env_file(path: Path) -> dict[str, str]:
    """Read `K=V` lines; skip empty lines and comments, and strip one pair of quotes."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"--env-file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--env-file {path} is not UTF-8 text") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--env-file {path}:{number}: {text!r} is not NAME=VALUE")
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[name.strip()] = value
    return found


def parse_volumes(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Parse `SOURCE:/TARGET[:ro]`; a path names a host directory, a bare name a volume managed by Paddock."""
    found: list[dict[str, Any]] = []
    for number, text in enumerate(texts, 1):
        parts = text.split(":")
        mode = parts.pop() if len(parts) == 3 else "rw"
        if len(parts) != 2 or not parts[0] or not parts[1].startswith("/") or mode not in ("ro", "rw"):
            raise UsageError(f"--volume {text!r} is not SOURCE:/TARGET or SOURCE:/TARGET:ro")
        source, target = parts
        volume: dict[str, Any] = {"name": f"volume-{number}", "mountPath": target, "readOnly": mode == "ro"}
        if source[0] in "/.~":
            volume["host"] = {"path": str(Path(source).expanduser().absolute())}
        else:
            volume["pvc"] = {"claimName": source}
        found.append(volume)
    return found


def parse_duration_option(text: str, option: str) -> float:
    """Return the seconds of `90`, `30s`, `10m` or `1h30m`."""
    from paddock.config.units import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if seconds <= 0:
        raise UsageError(f"{option} must be greater than zero")
    return seconds


def parse_lifetime(text: str | None) -> dict[str, Any]:
    """Return the `timeout` of a new sandbox: absent, seconds, or null for no expiry."""
    if text is None:
        return {}
    if text in ("none", "never"):
        return {"timeout": None}
    return {"timeout": max(1, round(parse_duration_option(text, "--timeout")))}


def parse_expiry(text: str) -> str:
    """Return the time after a duration from now, in the API's format."""
    return (datetime.now(UTC) + timedelta(seconds=parse_duration_option(text, "--for"))).isoformat()


def join_rules(rules: Sequence[str]) -> str | list[str]:
    """Return the rules of a repeatable option as a network policy; one alone may be `none`."""
    return rules[0] if len(rules) == 1 else list(rules)


def parse_chat_network(rules: Sequence[str]) -> str | list[str] | None:
    """Return the network policy of a chat; `None` for `default`, which stands alone."""
    words = [rule.strip() for rule in rules if rule.strip()]
    if words == [DEFAULT_NETWORK]:
        return None
    if DEFAULT_NETWORK in words or not words:
        raise UsageError("the network 'default' stands alone", hint="leave it out, or give no other rules")
    return join_rules(words)


def parse_resource_limits(**limits: str | None) -> dict[str, str]:
    """Validate resource limits and return them by name."""
    from paddock.config.units import parse_cpu, parse_size

    found: dict[str, str] = {}
    for name, text in limits.items():
        if text is None:
            continue
        try:
            (parse_cpu if name == "cpu" else parse_size)(text)
        except ValueError as error:
            raise UsageError(f"--{name}: {error}") from None
        found[name] = text
    return found


def require_root_user(text: str) -> str:
    if text != "root":
        raise UsageError(f"--user {text!r}: only root can be chosen; leave it out for the image's user")
    return text
