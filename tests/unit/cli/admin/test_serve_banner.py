"""The banner of `paddock serve` names the configured models."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.admin.serve_command import _models_text, _ready_banner
from paddock.config import load_config


@pytest.mark.parametrize(
    ("environ", "text", "line"),
    [
        ({}, "", "none; the demo answers"),
        ({}, "llm: {demo: false}", "none; set a provider's key, such as ANTHROPIC_API_KEY"),
        ({"OPENAI_API_KEY": "sk-1"}, "", "gpt-*, o1*, o3*, … (OPENAI_API_KEY)"),
        (
            {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "http://gpu:8000/v1", "ANTHROPIC_API_KEY": "sk-2"},
            "",
            "claude-* (ANTHROPIC_API_KEY); all of http://gpu:8000/v1 (OPENAI_API_KEY)",
        ),
        ({}, "llm: {providers: {mine: {kind: openai}}, models: {fast: mine/gpt-5-mini}}", "fast (mine)"),
        ({}, "llm: {providers: {mine: {kind: openai}}}", "none; configure some in llm.models for mine"),
    ],
)
def test_models_are_named_with_their_origin(tmp_path: Path, environ: dict[str, str], text: str, line: str) -> None:
    (tmp_path / "paddock.yaml").write_text(text)
    assert _models_text(load_config(environ=environ, cwd=tmp_path).config.llm) == line


def test_banner_names_keys_that_configured_providers_do_not_use(tmp_path: Path) -> None:
    (tmp_path / "paddock.yaml").write_text("llm: {providers: {mine: {kind: openai}}, models: {m: mine}}\n")
    config = load_config(environ={"OPENAI_API_KEY": "sk-1"}, cwd=tmp_path).config
    line = "OPENAI_API_KEY is set but ignored, because paddock.yaml names providers"
    assert line in _ready_banner(config, "http://127.0.0.1:8420")
