from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.config import Config, LoadedConfig, list_settings, load_config
from paddock.config.reference import configuration_page, field_descriptions
from paddock.errors import ConfigError


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def config_directory(tmp_path: Path) -> Path:
    (tmp_path / "config_directory").mkdir()
    return tmp_path / "config_directory"


def load_text(config_directory: Path, text: str, environ: dict[str, str] | None = None, **flags: Any) -> LoadedConfig:
    (config_directory / "paddock.yaml").write_text(text)
    return load_config(flags=flags, environ=environ or {}, cwd=config_directory)


def problems(config_directory: Path, text: str, environ: dict[str, str] | None = None, **flags: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(config_directory, text, environ, **flags)
    return [line.strip() for line in caught.value.message.splitlines()[1:]]


def test_empty_configuration_has_defaults(config_directory: Path) -> None:
    loaded = load_config(environ={}, cwd=config_directory)
    assert loaded.config.data == Path.home() / ".paddock"
    assert loaded.config.shared == Path.home() / ".paddock/shared"
    assert loaded.config.sandboxes.limits.memory == 2 * 2**30
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.file is None


def test_flags_override_environment_and_environment_overrides_file(config_directory: Path) -> None:
    text = "server:\n  port: 1\n  host: 127.0.0.2\n  shutdown_grace: 1m\n"
    environ = {"PADDOCK_SERVER__PORT": "2", "PADDOCK_SERVER__HOST": "127.0.0.3"}
    loaded = load_text(config_directory, text, environ, **{"server.port": 3, "server.max_body": None})
    assert (loaded.config.server.port, loaded.config.server.host) == (3, "127.0.0.3")
    assert loaded.config.server.shutdown_grace == 60
    assert loaded.origins["server.port"] == "flag --port"
    assert loaded.origins["server.host"] == "environment PADDOCK_SERVER__HOST"
    assert loaded.origins["server.shutdown_grace"] == "paddock.yaml:4"
    assert loaded.origins["server.max_body"] == "default"


def test_every_problem_is_reported_with_its_location(config_directory: Path) -> None:
    found = problems(
        config_directory,
        "server:\n  prot: 1\n  host: ${MISSING}\nlog:\n  level: loud\npools:\n  - image: a\n    size: -1\n",
        {"PADDOCK_SERVER__PROT": "1", "PADDOCK_LOG__FORMT": "json"},
        **{"sandboxes.max_timeout": "soon"},
    )
    text = "\n".join(found)
    assert "paddock.yaml:3: server.host: the environment has no MISSING" in text
    assert "paddock.yaml:5: log.level: must be 'debug', 'info', 'warning' or 'error', not 'loud'" in text
    assert "paddock.yaml:8: pools.0.size:" in text
    assert "paddock.yaml:7: pools.0.name: is missing; add it" in text
    assert (
        "environment PADDOCK_SERVER__PROT: there is no setting server.prot; did you mean PADDOCK_SERVER__PORT?" in text
    )
    assert "environment PADDOCK_LOG__FORMT: there is no setting log.formt; did you mean PADDOCK_LOG__FORMAT?" in text
    assert "flag --max-timeout: sandboxes.max_timeout: 'soon' is not a duration" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("servr:\n  port: 1\n", "paddock.yaml:1: there is no setting servr; did you mean server?"),
        ("\nserver:\n  prot: 1\n", "paddock.yaml:3: there is no setting server.prot; did you mean server.port?"),
        ("port: 1\n", "paddock.yaml:1: there is no setting port; did you mean server.port?"),
        ("server: [\n", "paddock.yaml:2: not valid YAML"),
        ("- a\n", "paddock.yaml:1: expected settings"),
        ("log:\n  level: info\nlog: {}\n", "paddock.yaml:3: log is set twice"),
        ("a: &a\n  b: *a\n", "paddock.yaml:2: a.b contains itself"),
        ("pools: 3\n", "paddock.yaml:1: pools: must be a list, not 3"),
        ("server: 5\n", "paddock.yaml:1: server: must be a mapping, not 5"),
        ("sandboxes:\n  default_timeout: 8d\n", "paddock.yaml:1: sandboxes: default_timeout is longer"),
        ("sandboxes:\n  max_limits: {cpu: 1}\n", "paddock.yaml:1: sandboxes: limits.cpu is more than max_limits.cpu"),
        ("images: {mirror: '${broken'}\n", "paddock.yaml:1: images.mirror: write ${NAME}"),
    ],
)
def test_invalid_setting_is_reported(config_directory: Path, text: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(config_directory, text)), problems(config_directory, text)


def test_values_from_the_environment_are_replaced_and_masked(config_directory: Path) -> None:
    text = "images:\n  mirror: https://me:${PASSWORD}@mirror\n  aliases:\n    a: $${HOME}\n    b: ${NONE:-other}\n"
    loaded = load_text(config_directory, text, {"PASSWORD": "hunter2"})
    assert loaded.config.images.mirror == "https://me:hunter2@mirror"
    assert loaded.config.images.aliases == {"a": "${HOME}", "b": "other"}
    shown = {line.key: line.value for line in list_settings(loaded)}
    assert shown["images.mirror"] == "********"
    assert shown["images.aliases.a"] == "${HOME}"
    assert "hunter2" not in str(shown)


def test_secrets_stay_out_of_error_messages(config_directory: Path) -> None:
    found = problems(config_directory, "server:\n  max_body: ${PASSWORD}\n", {"PASSWORD": "hunter2"})
    assert found
    assert "hunter2" not in str(found)


def test_configuration_file_is_searched_in_order(config_directory: Path) -> None:
    def write(path: Path, port: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"server: {{port: {port}}}\n")

    def port(environ: dict[str, str] | None = None, **flags: Any) -> int:
        return load_config(flags=flags, environ=environ or {}, cwd=config_directory).config.server.port

    write(Path.home() / ".config/paddock/paddock.yaml", 1)
    assert port() == 1
    write(config_directory / "paddock.yaml", 2)
    assert port() == 2
    write(config_directory / "other/c.yaml", 3)
    assert port({"PADDOCK_CONFIG": "other/c.yaml"}) == 3
    write(config_directory / "d.yaml", 4)
    assert port({"PADDOCK_CONFIG": "other/c.yaml"}, config="d.yaml") == 4
    with pytest.raises(ConfigError, match=r"flag --config: there is no file .*e\.yaml"):
        port(config="e.yaml")


def test_relative_paths_are_resolved_against_their_source(config_directory: Path) -> None:
    (config_directory / "sub").mkdir()
    (config_directory / "sub/c.yaml").write_text("data: sandbox\nimages: {recipes: [r, ~/s, /t]}\n")
    loaded = load_config(flags={"config": "sub/c.yaml", "sandboxes.shared": "x/../y"}, environ={}, cwd=config_directory)
    assert loaded.config.data == config_directory / "sub/sandbox"
    assert loaded.config.images.recipes == (config_directory / "sub/r", Path.home() / "s", Path("/t"))
    assert loaded.config.shared == config_directory / "y"


def test_environment_variables_may_hold_lists_maps_and_null(config_directory: Path) -> None:
    environ = {
        "PADDOCK_DATA": "/d",
        "PADDOCK_SERVER__CORS_ORIGINS": "https://a, https://b",
        "PADDOCK_SERVER__ALLOWED_HOSTS": "[c, d]",
        "PADDOCK_SANDBOXES__DEFAULT_TIMEOUT": "null",
        "PADDOCK_POOLS": "[{name: p, image: code}]",
        "PADDOCK_QUOTAS__TENANTS__ACME__SANDBOXES": "5",
        "PADDOCK_LOCAL__UNSAFE_DISABLE_SECCOMP": "true",
        "PADDOCK_API_KEY": "pdk_x",
        "PADDOCK_URL": "http://x",
    }
    config = load_config(environ=environ, cwd=config_directory).config
    assert config.data == Path("/d")
    assert config.server.cors_origins == ("https://a", "https://b")
    assert config.server.allowed_hosts == ("c", "d")
    assert config.sandboxes.default_timeout is None
    assert config.pools[0].name == "p"
    assert config.quotas.tenants["acme"].sandboxes == 5
    assert config.local.unsafe_disable_seccomp is True


def test_partial_limits_and_quotas_keep_the_rest(config_directory: Path) -> None:
    config = load_text(
        config_directory,
        "sandboxes: {limits: {cpu: 500m}}\nquotas: {snapshots: 7, tenants: {acme: {sandboxes: null, memory: 1Gi}}}\n",
    ).config
    assert (config.sandboxes.limits.cpu, config.sandboxes.limits.pids) == (0.5, 512)
    acme, other = config.quotas.for_tenant("acme"), config.quotas.for_tenant("other")
    assert (acme.sandboxes, acme.snapshots, acme.memory) == (None, 7, 2**30)
    assert (other.sandboxes, other.snapshots, other.memory) == (100, 7, None)


def test_yaml_merge_keys_and_empty_files_are_accepted(config_directory: Path) -> None:
    text = "pools:\n  - &p {name: a, image: code}\n  - {<<: *p, name: b}\n"
    assert [pool.name for pool in load_text(config_directory, text).config.pools] == ["a", "b"]
    assert load_text(config_directory, "").config.server.port == 8420


def test_shown_values_can_be_parsed(config_directory: Path) -> None:
    text = "pools: [{name: p, image: code, limits: {memory: 1Gi}}]\nserver: {max_body: 5M, cors_origins: [a, b]}\n"
    loaded = load_text(config_directory, text)
    again = load_config(
        environ={}, cwd=config_directory.parent, flags={line.key: line.value for line in list_settings(loaded)}
    )
    assert again.config == loaded.config


def test_reference_page_rows_are_complete() -> None:
    rows = [line for line in configuration_page().splitlines() if line.startswith("|")]
    assert all(row.endswith(" |") or row == "|---|---|---|---|" for row in rows)
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)
    assert not [row for row in rows if "None" in row or "<class" in row]
    assert (
        "### llm.providers.NAME" in configuration_page() and "| `key` | secret text | `null` |" in configuration_page()
    )


def test_reference_page_is_current() -> None:
    page = Path(__file__).parents[3] / "docs/reference/configuration.md"
    assert page.read_text() == configuration_page(), (
        "run: python -m paddock.config.reference > docs/reference/configuration.md"
    )


def test_every_setting_has_a_description() -> None:
    def check(model: Any) -> None:
        explained = field_descriptions(model)
        for name, field in model.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and hasattr(inner, "model_fields"):
                check(inner)
            else:
                assert explained.get(name), f"{model.__name__}.{name}"

    check(Config)


def test_section_can_be_loaded_despite_problems_in_others(config_directory: Path) -> None:
    """A client needs the data directory of the server, but not the server's secrets."""
    text = """
        data: mine
        server: {port: 9100, max_body: "${LARGEST}"}
        llm:
          providers:
            far: {kind: openai, key: "${FAR_KEY}"}
        nonsense: 1
        nonsense: 2
    """
    (config_directory / "paddock.yaml").write_text(text)
    environ = {"PADDOCK_LLM__NONSENSE": "1", "PADDOCK_SERVER__HOST": "::1"}
    part = load_config(environ=environ, cwd=config_directory, only=["data", "server.host", "server.port"]).config
    assert (part.data, part.server.host, part.server.port) == (config_directory / "mine", "::1", 9100)
    assert part.llm.providers == {}
    assert any("the environment has no FAR_KEY" in line for line in problems(config_directory, text))


def test_section_is_validated_as_strictly_as_whole_file(config_directory: Path) -> None:
    (config_directory / "paddock.yaml").write_text("data: ${NOWHERE}\nllm: 5")
    with pytest.raises(ConfigError, match="data: the environment has no NOWHERE") as caught:
        load_config(environ={}, cwd=config_directory, only=["data"])
    assert "llm" not in caught.value.message
    (config_directory / "paddock.yaml").write_text("data: [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_config(environ={}, cwd=config_directory, only=["data"])


def test_devices_have_names_and_addresses(config_directory: Path) -> None:
    text = "live:\n  devices: {pixel: '192.168.1.20:5555', lab-2: '[fe80::1]:5556', emulator: 'host.example:65535'}\n"
    assert load_text(config_directory, text).config.live.devices == {
        "pixel": "192.168.1.20:5555",
        "lab-2": "[fe80::1]:5556",
        "emulator": "host.example:65535",
    }


@pytest.mark.parametrize(
    ("name", "address", "message"),
    [
        ("Pixel 7", "a:5555", "'Pixel 7' is not a valid device name; use lowercase letters"),
        ("-a", "a:5555", "'-a' is not a valid device name"),
        ("pixel", "a", "pixel: 'a' is not an address; write HOST:PORT, such as 192.168.1.20:5555"),
        ("pixel", "a:0", "is not an address"),
        ("pixel", "a:65536", "is not an address"),
        ("pixel", "a b:1", "is not an address"),
        ("pixel", "fe80::1:5555", "is not an address"),
        ("pixel", "http://a:5555", "is not an address"),
        ("pixel", "a:\uff15\uff15", "is not an address"),
    ],
)
def test_invalid_devices_are_refused(config_directory: Path, name: str, address: str, message: str) -> None:
    (found,) = problems(config_directory, f"live:\n  devices:\n    {name!r}: {address!r}\n")
    assert "live.devices" in found and message in found


SECRET = """
llm:
  providers:
    fake:
      kind: openai
      base_url: ${FAKE_URL}
      key: ${FAKE_KEY}
server:
  port: ${PORT}
"""


def test_unset_variables_are_allowed_for_clients(config_directory: Path) -> None:
    (config_directory / "paddock.yaml").write_text(SECRET)
    loaded = load_config(environ={}, cwd=config_directory, need_variables=False)
    assert loaded.config.server.port == 8420
    assert loaded.unset == {
        "llm.providers.fake.base_url": "paddock.yaml:6: llm.providers.fake.base_url: the environment has no FAKE_URL",
        "llm.providers.fake.key": "paddock.yaml:7: llm.providers.fake.key: the environment has no FAKE_KEY",
        "server.port": "paddock.yaml:9: server.port: the environment has no PORT",
    }
    shown = {line.key: line.value for line in list_settings(loaded)}
    assert shown["llm.providers.fake.key"] == "unresolved: the environment has no FAKE_KEY"
    assert shown["server.port"] == "unresolved: the environment has no PORT"


def test_needed_unset_variables_are_reported_once(config_directory: Path) -> None:
    assert problems(config_directory, SECRET) == [
        "paddock.yaml:6: llm.providers.fake.base_url: the environment has no FAKE_URL",
        "paddock.yaml:7: llm.providers.fake.key: the environment has no FAKE_KEY",
        "paddock.yaml:9: server.port: the environment has no PORT",
    ]


def test_known_provider_may_take_its_key_from_environment(config_directory: Path) -> None:
    text = "llm:\n  models: {acme-*: openai, gpt: {provider: openai, model: gpt-5}}\n"
    problem = "paddock.yaml:2: llm.providers.openai.key: the environment has no OPENAI_API_KEY"
    (config_directory / "paddock.yaml").write_text(text)
    loaded = load_config(environ={}, cwd=config_directory, need_variables=False)
    assert loaded.unset == {"llm.providers.openai.key": problem}
    assert loaded.config.llm.providers["openai"].kind == "openai"
    shown = {line.key: line.value for line in list_settings(loaded)}
    assert shown["llm.providers.openai.key"] == "unresolved: the environment has no OPENAI_API_KEY"
    assert problems(config_directory, text) == [problem]
    assert load_config(environ={"OPENAI_API_KEY": "sk-1"}, cwd=config_directory).unset == {}
    for wrong in (text.replace("openai", "opena1"), text + "  environment: false\n"):
        assert any("there is no provider" in line for line in problems(config_directory, wrong))


def test_other_problems_are_reported_beside_unset_variables(config_directory: Path) -> None:
    (config_directory / "paddock.yaml").write_text(SECRET + "  host: 7\n")
    with pytest.raises(ConfigError, match=r"paddock.yaml:10: server.host"):
        load_config(environ={}, cwd=config_directory, need_variables=False)


def test_overridden_unset_variable_is_not_reported(config_directory: Path) -> None:
    text = "server:\n  port: ${PORT}\n"
    assert load_text(config_directory, text, {"PADDOCK_SERVER__PORT": "7"}).config.server.port == 7


def test_invalid_settings_are_skipped_on_request(config_directory: Path) -> None:
    text = """
        server: {port: 9999, host: 5, prot: 1}
        nothing: 1
        llm:
          providers:
            broken: {key: x}
            fine: {kind: openai, key: y}
    """
    (config_directory / "paddock.yaml").write_text(text)
    with pytest.raises(ConfigError):
        load_config(environ={}, cwd=config_directory)
    loaded = load_config(environ={}, cwd=config_directory, skip_invalid=True)
    assert loaded.config.server.port == 9999
    assert loaded.config.server.host == Config().server.host
    assert list(loaded.config.llm.providers) == ["fine"]
    assert [any(key in problem for problem in loaded.problems) for key in ("server.host", "nothing", "broken")] == [
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("text", ["5", "server: 5", "[", "a: *a", "llm: {providers: {a: 1}, models: 3}"])
def test_skipping_invalid_settings_never_fails(config_directory: Path, text: str) -> None:
    (config_directory / "paddock.yaml").write_text(text)
    loaded = load_config(environ={}, cwd=config_directory, skip_invalid=True)
    assert loaded.problems and loaded.config.server == Config().server
