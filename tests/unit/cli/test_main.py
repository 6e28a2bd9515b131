"""Help, examples, errors and exit codes of all commands."""

from __future__ import annotations

import json
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from paddock.cli.framework.command_registration import fold_command_example
from paddock.cli.framework.command_table import COMMANDS, SUMMARIES
from paddock.cli.main import build_app, run
from paddock.cli.reference import build_reference_page

PAGE = Path(__file__).parents[3] / "docs/reference/cli.md"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PADDOCK_URL", "PADDOCK_API_KEY", "PADDOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDOCK_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def every_command(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        if getattr(inner, "commands", None):
            yield from every_command(inner, (*path, name))
        else:
            yield (*path, name), inner


ALL = dict(every_command(typer.main.get_command(build_app())))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help_with_examples_and_fits_80_columns(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*path, "--help"]) == 0
    text = capsys.readouterr().out
    first, _, examples = text.partition("Examples:")
    assert first.strip() and f"paddock {' '.join(path).replace('keys', 'key', 1)}" in examples
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "--json" in text and "--debug" in text


def test_top_level_help_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) < 80


@pytest.mark.parametrize(
    "example", ["paddock a --one 1", f"paddock {'x' * 60} --two '2 3' --three {'y' * 60} | jq '.a'"]
)
def test_folded_example_has_the_same_words(example: str) -> None:
    lines = fold_command_example(example)
    assert all(len(line) <= 76 for line in lines)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(example)


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == build_reference_page(), (
        "run: python -m paddock.cli.reference > docs/reference/cli.md"
    )


def test_top_level_summaries_match_the_commands() -> None:
    commands: dict[str, Any] = getattr(typer.main.get_command(build_app()), "commands", {})
    shown = {name: command.get_short_help_str(200) for name, command in commands.items() if not command.hidden}
    assert shown == SUMMARIES
    assert COMMANDS.keys() == commands.keys()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sandbox", "frobnicate"], "no such command 'frobnicate'"),
        (["frobnicate"], "no such command 'frobnicate'"),
        (["sandbox", "list", "--frob"], "no such option: --frob"),
        (["sandbox", "show"], "missing argument 'SANDBOX'"),
        (["sandbox", "port", "x", "99999"], "PORT must be at most 65535"),
        (["sandbox", "exec", "x"], "give a command after --"),
        (["sandbox", "exec", "x", "-c", "a", "--", "b"], "give a command after --"),
        (["sandbox", "exec", "x", "--user", "Root!", "--", "id"], "--user 'Root!' is not a name, UID"),
        (["sandbox", "rm"], "name the sandboxes to remove"),
        (["sandbox", "create", "--image", "a", "--snapshot", "b"], "give one"),
        (["image", "build"], "name the images to build"),
        (["key", "create", "a", "--scope", "everything"], "--scope 'everything' is unknown"),
    ],
)
def test_usage_errors_are_one_line_with_a_hint(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    error, *hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and message in error
    assert len(hint) <= 1
    index = words.index("--") if "--" in words else len(words)
    assert run([*words[:index], "--json", *words[index:]]) == 2
    assert message in json.loads(capsys.readouterr().err)["error"]["message"]


def test_failed_image_pull_has_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = tmp_path / "skopeo"
    fake.write_text("#!/bin/sh\necho 'dial tcp: lookup docker.io: no such host' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert run(["image", "build", "nosuch"]) == 1
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert "docker.io cannot be reached from here" in error and "dial tcp" not in error
    assert "paddock image list" in hint


def test_options_of_the_inner_command_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sandbox", "exec", "x", "ls", "-l"]) == 2
    assert "inner command after --" in capsys.readouterr().err


def test_a_broken_configuration_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "paddock.yaml").write_text("server:\n  prot: 1\n")
    assert run(["config", "check"]) == 1
    assert "paddock.yaml:2: there is no setting server.prot; did you mean server.port?" in capsys.readouterr().err
    assert run(["config", "check", "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "INVALID_CONFIG"


def test_unexpected_error_has_a_traceback_only_with_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("paddock.config.load_config", broken)
    assert run(["config", "show"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ZeroDivisionError: oh\n") and "--debug" in error
    with pytest.raises(ZeroDivisionError):
        run(["config", "show", "--debug"])


def test_no_colours_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    run(["config", "show"])
    run(["sandbox", "list"])
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err


def test_config_show_names_the_origin_of_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_SERVER__PORT", "9000")
    assert run(["config", "show", "server.port", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"key": "server.port", "value": "9000", "origin": "environment PADDOCK_SERVER__PORT"}
    ]
    assert run(["config", "show", "nothing"]) == 1
    assert run(["config", "show", "--changed"]) == 0
    assert re.search(r"server\.port +9000 +environment", capsys.readouterr().out)


def test_commands_of_clients_need_no_variable_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paddock.yaml").write_text(
        'data: data\nllm: {providers: {far: {kind: openai, key: "${NOT_SET_ANYWHERE}"}}, models: {fast: far/m}}'
    )
    for command in (["config", "show", "llm"], ["llm", "list"], ["runs", "list"], ["sandbox", "list"]):
        assert run(command) == 0, capsys.readouterr().err
    assert "fast" in capsys.readouterr().out


def test_config_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "path"]) == 1
    (tmp_path / "paddock.yaml").write_text("{}")
    assert run(["config", "path"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "paddock.yaml")


def test_keys_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["key", "create", "ci", "--expires", "1d"]) == 0
    secret = capsys.readouterr().out.strip()
    assert re.fullmatch(r"pdk_[0-9A-Za-z]{43}", secret)
    assert run(["key", "list", "--json"]) == 0
    listed = capsys.readouterr().out
    assert secret not in listed
    [key] = json.loads(listed)
    assert (key["name"], key["scopes"], key["tenant"]) == ("ci", ["sandboxes:write"], "default")
    assert secret.startswith(key["prefix"])
    assert run(["key", "revoke", "ci"]) == 0
    assert capsys.readouterr().out.strip() == key["id"]
    assert run(["key", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["keys", "revoke", "nobody"]) == 1


def test_images_without_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["image", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["images"] == [] and "host" in listed["notBuilt"] and "code" in listed["notBuilt"]
    assert run(["image", "show", "code"]) == 1
    assert "run 'paddock image build code'" in capsys.readouterr().err
    assert run(["image", "rm", "code"]) == 1
    assert run(["image", "prune", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.split("\n", 0)[0])["images"] == []


def test_image_build_creates_a_private_data_directory(tmp_path: Path) -> None:
    assert run(["image", "build", "host"]) == 0
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_image_build_prints_its_result_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["image", "build", "host", "--json"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["image"] == "host" and last["event"] == "done" and re.fullmatch(r"[0-9a-f]{64}", last["digest"])
    assert run(["image", "show", "host"]) == 0
    assert re.search(r"^current +yes$", capsys.readouterr().out, re.MULTILINE)
    assert run(["image", "build", "no_such"]) == 1
    assert "no recipe named 'no_such'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serve", "--port", "abc"], "--port must be a whole number, not 'abc'"),
        (["runs", "list", "-n", "0"], "--limit must be at least 1, not '0'"),
        (["sandbox", "record", "start", "desk", "--fps", "fast"], "--fps must be a number, not 'fast'"),
        (["pool", "resize", "desks", "many"], "N must be a whole number, not 'many'"),
        (["serve", "--port", "99999"], "flag --port: server.port: must be at most 65535, not 99999"),
        (
            ["serve", "--log-level", "loud"],
            "flag --log-level: log.level: must be 'debug', 'info', 'warning' or 'error'",
        ),
    ],
)
def test_wrong_values_are_explained(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) != 0
    shown = capsys.readouterr().err
    assert message in shown
    assert "nput should be" not in shown
