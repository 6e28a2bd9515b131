"""Providers are discovered from API keys in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.config import list_settings, load_config
from paddock.config.loader import LoadedConfig
from paddock.errors import ConfigError

KEYS = {
    "ANTHROPIC_API_KEY": "sk-ant-1",
    "OPENAI_API_KEY": "sk-2",
    "GEMINI_API_KEY": "AIza3",
    "DASHSCOPE_API_KEY": "sk-4",
    "ZHIPUAI_API_KEY": "5.6",
}


@pytest.fixture
def config_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def loaded(config_directory: Path, environ: dict[str, str], text: str = "") -> LoadedConfig:
    (config_directory / "paddock.yaml").write_text(text)
    return load_config(environ=environ, cwd=config_directory)


def test_each_key_adds_its_provider_and_model_patterns(config_directory: Path) -> None:
    llm = loaded(config_directory, KEYS).config.llm
    found = {name: (each.kind, each.key and each.key.get_secret_value()) for name, each in llm.providers.items()}
    assert found == {
        "anthropic": ("anthropic", "sk-ant-1"),
        "openai": ("openai", "sk-2"),
        "google": ("gemini", "AIza3"),
        "dashscope": ("openai", "sk-4"),
        "zhipu": ("openai", "5.6"),
    }
    assert {name: (model.provider, model.model) for name, model in llm.models.items()} == {
        "claude-*": ("anthropic", "claude-*"),
        "gpt-*": ("openai", "gpt-*"),
        "o1*": ("openai", "o1*"),
        "o3*": ("openai", "o3*"),
        "o4*": ("openai", "o4*"),
        "gemini-*": ("google", "gemini-*"),
        "qwen*": ("dashscope", "qwen*"),
        "glm-*": ("zhipu", "glm-*"),
    }
    assert (llm.providers["openai"].api, llm.providers["dashscope"].thinking) == ("both", "enable_thinking")
    assert llm.providers["dashscope"].base_url == "https://dashscope.aliyuncs.com/compatible-mode/v1"
    assert llm.discovered_providers["zhipu"] == "ZHIPUAI_API_KEY"


def test_origins_are_shown_and_keys_are_masked(config_directory: Path) -> None:
    lines = list_settings(loaded(config_directory, {**KEYS, "ANTHROPIC_BASE_URL": "https://near.example/"}))
    shown = {line.key: (line.value, line.origin) for line in lines}
    assert shown["llm.providers.anthropic.key"] == ("********", "environment ANTHROPIC_API_KEY")
    assert shown["llm.providers.anthropic.kind"] == ("anthropic", "environment ANTHROPIC_API_KEY")
    assert shown["llm.providers.anthropic.base_url"] == ("https://near.example", "environment ANTHROPIC_BASE_URL")
    assert shown["llm.models.gpt-*.provider"] == ("openai", "environment OPENAI_API_KEY")
    assert not [line for line in lines if any(key in str(line) for key in KEYS.values() if len(key) > 3)]


def test_alternative_key_variables_are_read_and_empty_ones_ignored(config_directory: Path) -> None:
    llm = loaded(config_directory, {"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": "AIza\n", "OPENAI_API_KEY": ""}).config.llm
    assert llm.discovered_providers == {"google": "GOOGLE_API_KEY"}
    key = llm.providers["google"].key
    assert key is not None and key.get_secret_value() == "AIza"


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ("llm: {providers: {mine: {kind: openai}}, models: {m: mine}}\n", KEYS),
        ("llm: {environment: false}\n", KEYS),
        ("", {**KEYS, "PADDOCK_LLM__ENVIRONMENT": "false"}),
        ("", {"OPENAI_API_KEY": "pdk_our_own", "ANTHROPIC_API_KEY": "pdk_our_own"}),
        ("", {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}),
    ],
)
def test_no_discovery_with_configured_providers_or_when_disabled(
    config_directory: Path, text: str, environ: dict[str, str]
) -> None:
    llm = loaded(config_directory, environ, text).config.llm
    assert llm.discovered_providers == {} and set(llm.providers) <= {"mine"} and set(llm.models) <= {"m"}


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("llm: {providers: {mine: {kind: openai}}, models: {m: mine}}\n", ("GEMINI_API_KEY", "OPENAI_API_KEY")),
        ('llm: {providers: {mine: {kind: openai, key: "${OPENAI_API_KEY}"}}}\n', ("GEMINI_API_KEY",)),
        ("llm: {environment: false, providers: {mine: {kind: openai}}}\n", ()),
        ("", ()),
    ],
)
def test_keys_that_configured_providers_do_not_use_are_known(
    config_directory: Path, text: str, ignored: tuple[str, ...]
) -> None:
    environ = {"OPENAI_API_KEY": "sk-open", "GEMINI_API_KEY": "sk-gem", "ANTHROPIC_API_KEY": "pdk_our_own"}
    assert sorted(loaded(config_directory, environ, text).config.llm.ignored_key_variables) == sorted(ignored)


def test_configured_models_replace_discovered_ones(config_directory: Path) -> None:
    llm = loaded(config_directory, KEYS, "llm: {models: {fast: openai/gpt-5-mini}}\n").config.llm
    assert list(llm.models) == ["fast"] and "anthropic" in llm.providers
    unset = r"paddock\.yaml:1: llm\.providers\.openai\.key: the environment has no OPENAI_API_KEY"
    with pytest.raises(ConfigError, match=unset):
        loaded(config_directory, {}, "llm: {models: {fast: openai/gpt-5-mini}}\n")
    with pytest.raises(ConfigError, match="there is no provider 'unknown'; known are: anthropic"):
        loaded(config_directory, KEYS, "llm: {models: {fast: unknown/gpt-5-mini}}\n")


def test_errors_name_the_variable(config_directory: Path) -> None:
    with pytest.raises(ConfigError, match=r"environment OPENAI_BASE_URL: llm\.providers\.openai\.base_url: 'nonsense'"):
        loaded(config_directory, {**KEYS, "OPENAI_BASE_URL": "nonsense"})
    with pytest.raises(ConfigError, match=r"paddock\.yaml:1: llm\.environment"):
        loaded(config_directory, KEYS, "llm: {environment: perhaps}\n")
    # Commands that need no models do not fail because of invalid providers.
    assert (
        load_config(
            environ={**KEYS, "OPENAI_BASE_URL": "nonsense"}, cwd=config_directory, only=["server.port"]
        ).config.llm.discovered_providers
        == {}
    )


def test_compatible_servers_may_have_models_of_any_name(config_directory: Path) -> None:
    keys = {"OPENAI_API_KEY": "sk-2", "ANTHROPIC_API_KEY": "sk-ant-1"}
    llm = loaded(config_directory, {**keys, "OPENAI_BASE_URL": "http://gpu.example/v1"}).config.llm
    patterns = {name: (model.provider, model.model) for name, model in llm.models.items()}
    assert patterns == {"claude-*": ("anthropic", "claude-*"), "*": ("openai", "*")}
    assert llm.providers["openai"].api == "chat"

    both = {**keys, "OPENAI_BASE_URL": "http://gpu.example/v1", "ANTHROPIC_BASE_URL": "http://gpu.example"}
    assert set(loaded(config_directory, both).config.llm.models) == {"claude-*", "*"}
    alone = {"ANTHROPIC_API_KEY": "sk-ant-1", "ANTHROPIC_BASE_URL": "http://gpu.example"}
    assert set(loaded(config_directory, alone).config.llm.models) == {"*"}


def test_other_url_of_same_provider_changes_nothing(config_directory: Path) -> None:
    llm = loaded(
        config_directory, {"OPENAI_API_KEY": "sk-2", "OPENAI_BASE_URL": "https://eu.api.openai.com/v1"}
    ).config.llm
    assert llm.providers["openai"].api == "both" and set(llm.models) == {"gpt-*", "o1*", "o3*", "o4*"}
