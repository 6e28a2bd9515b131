"""Reads what people write in arguments."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from paddock.cli.failure import UsageProblem


def assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """`K=V` pairs; the last one of a name wins."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageProblem(f"{option} {text!r} is not NAME=VALUE")
        found[name] = value
    return found


def environment(texts: Iterable[str], files: Iterable[Path] = ()) -> dict[str, str]:
    """Variables from files, then from `K=V`, or `K` alone for the value it has here."""
    import os

    found: dict[str, str] = {}
    for path in files:
        found |= env_file(path)
    for text in texts:
        if "=" not in text:
            if text not in os.environ:
                raise UsageProblem(f"--env {text}: there is no such variable here; write NAME=VALUE")
            text = f"{text}={os.environ[text]}"
        found |= assignments([text], "--env")
    return found


def env_file(path: Path) -> dict[str, str]:
    """`K=V` lines; empty lines and those that begin with `#` are skipped, one pair of quotes is taken off."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageProblem(f"--env-file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageProblem(f"--env-file {path} is not UTF-8 text") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageProblem(f"--env-file {path}:{number}: {text!r} is not NAME=VALUE")
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[name.strip()] = value
    return found


def volumes(texts: Iterable[str]) -> list[dict[str, Any]]:
    """`SOURCE:/TARGET[:ro]`; a source with a slash is a host directory, a bare name a volume Paddock keeps."""
    found: list[dict[str, Any]] = []
    for number, text in enumerate(texts, 1):
        parts = text.split(":")
        mode = parts.pop() if len(parts) == 3 else "rw"
        if len(parts) != 2 or not parts[0] or not parts[1].startswith("/") or mode not in ("ro", "rw"):
            raise UsageProblem(f"--volume {text!r} is not SOURCE:/TARGET or SOURCE:/TARGET:ro")
        source, target = parts
        volume: dict[str, Any] = {"name": f"volume-{number}", "mountPath": target, "readOnly": mode == "ro"}
        if source[0] in "/.~":
            volume["host"] = {"path": str(Path(source).expanduser().absolute())}
        else:
            volume["pvc"] = {"claimName": source}
        found.append(volume)
    return found


def duration(text: str, option: str) -> float:
    """Seconds from `90`, `30s`, `10m`, `1h30m`."""
    from paddock.config.units import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageProblem(f"{option}: {error}") from None
    if seconds <= 0:
        raise UsageProblem(f"{option} must be more than nothing")
    return seconds


def lifetime(text: str | None) -> dict[str, Any]:
    """The `timeout` of a new sandbox: left out, a number of seconds, or null for one that lives until it is removed."""
    if text is None:
        return {}
    if text in ("none", "never"):
        return {"timeout": None}
    return {"timeout": max(1, round(duration(text, "--timeout")))}


def later(text: str) -> str:
    """The time that is a duration from now, as the API takes it."""
    return (datetime.now(UTC) + timedelta(seconds=duration(text, "--for"))).isoformat()


def resource_limits(**wanted: str | None) -> dict[str, str]:
    """Limits by name, checked here so that a typing error is told at once."""
    from paddock.config.units import parse_cpu, parse_size

    found: dict[str, str] = {}
    for name, text in wanted.items():
        if text is None:
            continue
        try:
            (parse_cpu if name == "cpu" else parse_size)(text)
        except ValueError as error:
            raise UsageProblem(f"--{name}: {error}") from None
        found[name] = text
    return found
