"""Script files: short and long forms, and errors for invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import ConfigError
from paddock.llm.scripted_model import text_template
from paddock.llm.scripted_model.script_loader import MAX_SCRIPT_BYTES, load_script, parse_script
from paddock.llm.scripted_model.script_schema import (
    DropConnectionAction,
    FailAction,
    SayAction,
    ShellAction,
    StallAction,
    WriteFileAction,
)

PATH = Path("demo.yaml")
EXAMPLES = Path(__file__).parents[4] / "examples" / "scripts"


def error_for(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_script(text, PATH)
    return caught.value.message


def test_turns_have_long_and_short_forms() -> None:
    script = parse_script(
        """
        turns:
          - say: One step.
          - - say: Two
            - shell: ls
          - when: {prompt: x}
            do: [{write_file: {path: a, content: b}}]
          - [drop, {stall: 250ms}, {fail: 429}]
          - drop
        """,
        PATH,
    )
    kinds = [[type(action) for action in turn.actions] for turn in script.turns]
    assert kinds == [
        [SayAction],
        [SayAction, ShellAction],
        [WriteFileAction],
        [DropConnectionAction, StallAction, FailAction],
        [DropConnectionAction],
    ]
    assert script.name == "demo"
    stall, fail = script.turns[3].actions[1:]
    assert isinstance(stall, StallAction) and stall.seconds == 0.25
    assert isinstance(fail, FailAction) and (fail.status, fail.times) == (429, 1)


def test_a_list_is_a_script_of_turns() -> None:
    assert len(parse_script("- say: a\n- say: b\n", PATH).turns) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("turns:\n  - say: a\n  - sya: b\n", "demo.yaml:3: turns.1.sya: no such action; did you mean 'say'?"),
        ("turn:\n  - say: a\n", "demo.yaml:1: turn: no such field; did you mean 'turns'?"),
        ("turns:\n  - write_file:\n      path: a\n", "demo.yaml:2: turns.0.write_file.content: is missing; add it"),
        ("turns:\n - - say: a\n   - shell: {cmd: ls}\n", "demo.yaml:3: turns.0.1.shell.cmd: no such field"),
        ("turns:\n - say: a\n   shell: b\n", "a step is exactly one action"),
        ("turns:\n - when: {prmpt: a}\n   do: [say: b]\n", "demo.yaml:2: turns.0.when.prmpt: no such field; did you"),
        ("turns:\n - when: {prompt: '('}\n   do: [say: b]\n", "is not a regular expression"),
        ("turns:\n - when: {}\n   do: [say: b]\n", "name a condition"),
        ("turns:\n - say: '{{ secrets }}'\n", "demo.yaml:2: turns.0.say: there is no {{ secrets }}"),
        ("turns:\n - call: {tool: x, arguments: {a: ['{{ x }}']}}\n", "there is no {{ x }}"),
        ("turns:\n - fail: 200\n", "demo.yaml:2: turns.0.fail: must be at least 400, not 200"),
        ("turns:\n - stall: 2 hours\n", "is not a duration"),
        ("turns:\n - stall: 3h\n", "must be at most 3600, not 10800"),
        ("turns:\n - finish: maybe\n", "demo.yaml:2: turns.0.finish: must be 'stop'"),
        ("turns: [[]]\n", "demo.yaml:1: turns.0: a turn has 1 to 200 steps"),
        ("turns: []\n", "a script needs turns or rules"),
        ("rules:\n - say: a\n", "rules.0 needs a when"),
        ("turns:\n - say: a\notherwise: drop\n", "otherwise must give an answer"),
        ("turns:\n - say: a\nname: 'a b'\n", "demo.yaml:3: name: "),
        ("turns:\n - say: [\n", "demo.yaml:3: not valid YAML"),
        ("turns: [{say: a}]\nturns: [{say: b}]\n", "demo.yaml:2: 'turns' is written twice"),
        ("just text\n", "a script is a mapping with turns"),
        ("", "a script is a mapping with turns"),
        ("turns: &a\n - say: x\nrules: *a\n", "demo.yaml:3: aliases such as *a cannot be used here"),
        ("turns:\n - say: !!python/object/apply:os.system ['true']\n", "demo.yaml:2: not valid YAML"),
        ("[" * 5000, "not valid YAML"),
        ("turns:\n - say: \0\n", "not valid YAML"),
        ("? [a]\n: b\n", "not valid YAML"),
    ],
)
def test_an_invalid_script_is_reported_with_line_and_fix(text: str, expected: str) -> None:
    assert expected in error_for(text)


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_script(tmp_path / "none.yaml", "llm.providers.s.file")
    assert caught.value.message == f"llm.providers.s.file: {tmp_path}/none.yaml cannot be read: there is no such file"
    (tmp_path / "latin.yaml").write_bytes(b"turns: [{say: \xff}]")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_script(tmp_path / "latin.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_SCRIPT_BYTES + 1))
    with pytest.raises(ConfigError, match="this file is larger"):
        load_script(tmp_path / "large.yaml")


@given(st.text(max_size=200))
def test_any_text_is_a_script_or_a_config_error(text: str) -> None:
    error_message = "demo.yaml:"
    try:
        parse_script(text, PATH)
    except ConfigError as error:
        error_message = error.message
    assert error_message.startswith("demo.yaml:")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_valid_scripts(path: Path) -> None:
    assert load_script(path).name == path.stem


def test_templates_are_filled_once() -> None:
    filler = text_template.ScriptTemplateFiller({"prompt": "{{ model }}", "model": "m"})
    assert filler.fill("a {{prompt}} b {{ model }} {{ tool.output }}!") == "a {{ model }} b m !"
    assert filler.fill("${{ '{{' }} x }}") == "${{ x }}"
    assert filler.fill_all({"a": ["{{ model }}", 1, None]}) == {"a": ["m", 1, None]}


def test_inserted_values_are_limited() -> None:
    assert (
        len(text_template.ScriptTemplateFiller({"prompt": "x" * 10**6}).fill("{{ prompt }}"))
        == text_template.MAX_VALUE_LENGTH
    )
