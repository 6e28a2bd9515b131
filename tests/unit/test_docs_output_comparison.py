"""Reading of documentation pages and comparison of command output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import page_reader
from tests.docs.output_comparison import find_difference, map_ids
from tests.docs.page_reader import read_blocks


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["42"], ["42"]),
        (["ID      STATE", "sb-0123456789ab  Running in 0.5 s"], ["ID  STATE", "sb-aaaaaaaaaaaa  Running in 12 ms"]),
        (["begin", "…", "end"], ["begin", "anything", "end", "more", "end"]),
        (["…", "end"], ["end"]),
        (["took … of memory"], ["took a lot of memory"]),
        (["12:00:01  it ran"], ["23:59:59  it ran"]),
        (["a", "", "b"], ["a", "b", ""]),
    ],
)
def test_matching_output_has_no_difference(shown: list[str], printed: list[str]) -> None:
    assert find_difference(shown, printed) is None


@pytest.mark.parametrize(
    ("shown", "printed", "reason"),
    [
        (["42"], ["43"], "the page shows: 42"),
        (["42"], [], "(nothing)"),
        (["a"], ["a", "b"], "the page does not show: b"),
        (["a", "…", "z"], ["a", "b"], "the page shows: z"),
        (["3 of 4 checks"], ["2 of 4 checks"], "3 of 4"),
    ],
)
def test_differing_output_is_reported(shown: list[str], printed: list[str], reason: str) -> None:
    found = find_difference(shown, printed)
    assert found is not None and reason in found


def test_numbers_may_vary_if_page_allows_it() -> None:
    assert find_difference(["9.8k tokens"], ["10k tokens"]) is not None
    assert find_difference(["9.8k tokens"], ["10k tokens"], numbers_vary=True) is None


def test_page_ids_are_mapped_to_printed_ids() -> None:
    shown = ["sb-0123456789ab  Running in 0.5 s", "snap-0123456789ab"]
    assert map_ids(shown, ["sb-aaaaaaaaaaaa  Running in 3 s", "", "snap-bbbbbbbbbbbb"]) == {
        "sb-0123456789ab": "sb-aaaaaaaaaaaa",
        "snap-0123456789ab": "snap-bbbbbbbbbbbb",
    }


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page_reader, "ROOT", tmp_path)
    return tmp_path / "page.md"


def test_page_commands_files_and_comments_are_read(page: Path) -> None:
    page.write_text(
        "<!-- run: mkdir a -->\n<!-- skip: needs a device -->\n```console\n$ one \\\n  two\nout\n$ three\n```\n"
        "<!-- file: a.yaml -->\n```yaml\na: 1\n```\n```yaml\n# b.yaml\nb: 1\n```\n```sh\n# a comment\nfour\n```\n"
    )
    console, first, second, shell = read_blocks(page)
    assert [command.text for command in console.setup] == ["mkdir a"]
    assert console.skip == "needs a device"
    assert [(command.text, command.output) for command in console.commands] == [
        ("one \\\n  two", ("out",)),
        ("three", ()),
    ]
    assert (first.file, second.file) == ("a.yaml", "b.yaml")
    assert [command.text for command in shell.commands] == ["four"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("text\n\n    paddock serve\n", "page.md:3: put code between"),
        ("```yaml\na: 1\n```\n", "name the file"),
        ("```ruby\nputs\n```\n", "is none of"),
        ("<!-- skip: why -->\ntext\n", "right before a code block"),
    ],
)
def test_unrunnable_page_is_rejected(page: Path, text: str, reason: str) -> None:
    page.write_text(text)
    with pytest.raises(ValueError, match=reason):
        read_blocks(page)
