"""Presets: lookup, validation errors, and launch plans."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import ConfigError, InvalidInput, NotFound
from paddock.model.task import Task
from paddock.runs.presets import AgentPreset, LaunchPlan, PresetLibrary, SandboxServiceAddresses, render_launch_plan
from paddock.runs.presets.output_rules import AgentErrorRule, AgentOutputRule, EmittedEventKind
from paddock.runs.presets.preset import PLACEHOLDERS, SERVER_PLACEHOLDERS, McpConfigFormat
from paddock.sandbox.images.recipe import load_recipe

ROOT = Path(__file__).parents[3]
AGENTS = ("claude-code", "codex", "gemini-cli", "opencode", "qwen-agent", "qwen-code")
AWKWARD = 'It\'s "quoted", `run`, $HOME, $(id), {model} {goal_file} \\ %s\n\tfrom 数 to ü;\n\n'
MODEL = "a\"b\\c'd${e}{home}"
"""Names of models may have anything but spaces and commas."""
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def task(agent: str | None, **fields: Any) -> Task:
    return Task.model_validate({"name": "sample", "goal": AWKWARD, "agent": agent, **fields})


def preset(**fields: Any) -> AgentPreset:
    return AgentPreset.model_validate({"name": "mine", "command": "mine", **fields})


def written(rendered: LaunchPlan, ending: str) -> Any:
    (content,) = [content.decode() for path, content in rendered.files.items() if path.endswith(ending)]
    return tomllib.loads(content) if ending.endswith(".toml") else json.loads(content)


class TestPresetLibrary:
    def test_built_in_presets_are_listed(self) -> None:
        assert PresetLibrary().names() == sorted([*AGENTS, "script"])

    @pytest.mark.parametrize("name", [*AGENTS, "script"])
    def test_each_built_in_preset_has_an_image_recipe(self, name: str) -> None:
        found = PresetLibrary().get(name)
        assert found.name == name and found.description
        assert load_recipe(ROOT / "images" / f"{found.image}.yaml").description

    def test_images_install_the_tested_versions(self) -> None:
        tested = json.loads((ROOT / "tests" / "clis" / "package.json").read_text())["dependencies"]
        recipes = [load_recipe(path) for path in (ROOT / "images").glob("agent-*.yaml")]
        packages = {package for recipe in recipes for package in recipe.npm}
        # ACP adapters are tested in the images themselves.
        adapters = {package for package in packages if package.startswith("@agentclientprotocol/")}
        assert packages - adapters == {f"{n}@{v}" for n, v in tested.items()}

    @pytest.mark.parametrize("name", ["claude", "../claude-code", "", "x" * 300, "Claude-Code"])
    def test_unknown_preset_error_lists_all_presets(self, name: str) -> None:
        with pytest.raises(NotFound, match="claude-code, codex, gemini-cli, opencode, qwen-agent, qwen-code, script"):
            PresetLibrary().get(name)

    def test_similar_preset_name_is_suggested(self) -> None:
        with pytest.raises(NotFound, match=r"no preset 'claude'; did you mean claude-code\?"):
            PresetLibrary().get("claude")

    def test_file_adds_a_preset(self, tmp_path: Path) -> None:
        (tmp_path / "mine.yaml").write_text("command: [mine, '{goal}']\nimage: host\n")
        found = PresetLibrary([tmp_path]).get("mine")
        assert (found.name, found.image, found.command) == ("mine", "host", ("mine", "{goal}"))
        assert "mine" in PresetLibrary([tmp_path]).names()

    def test_file_can_override_and_extend_a_built_in_preset(self, tmp_path: Path) -> None:
        (tmp_path / "codex.yaml").write_text("extends: codex\nmodel: another\n")
        found, built_in = PresetLibrary([tmp_path]).get("codex"), PresetLibrary().get("codex")
        assert found == built_in.model_copy(update={"model": "another"})

    def test_earlier_directories_take_precedence(self, tmp_path: Path) -> None:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "mine.yaml").write_text(f"command: {name}\n")
        assert (
            PresetLibrary([tmp_path / "first", tmp_path / "second", tmp_path / "none"]).get("mine").command == "first"
        )

    def test_changed_preset_files_are_reloaded(self, tmp_path: Path) -> None:
        presets = PresetLibrary([tmp_path])
        built_in = presets.get("qwen-code")
        assert presets.get("qwen-code") is built_in
        (tmp_path / "claude-code.yaml").write_text("extends: claude-code\noutput: lines\n")
        changed = presets.get("qwen-code")
        assert (changed.output.format, changed.command) == ("lines", built_in.command)
        (tmp_path / "claude-code.yaml").unlink()
        assert presets.get("qwen-code") == built_in

    def test_cyclic_extends_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text("extends: b\n")
        (tmp_path / "b.yaml").write_text("command: b\nextends: a\n")
        with pytest.raises(
            ConfigError, match=r"b\.yaml:2: extends: 'a' extends this preset in a cycle; remove one 'extends'"
        ):
            PresetLibrary([tmp_path]).get("a")


class TestDocumentation:
    @pytest.mark.parametrize("name", ["oneshot", "claude-code"])
    def test_documented_examples_are_valid_presets(self, tmp_path: Path, name: str) -> None:
        text = (ROOT / "docs" / "how-to" / "bring-your-own-agent.md").read_text()
        (example,) = re.findall(rf"```yaml\n# presets/{name}\.yaml\n(.*?)```", text, re.DOTALL)
        (tmp_path / f"{name}.yaml").write_text(example)
        found = PresetLibrary([tmp_path]).get(name)
        assert render_launch_plan(found, task(name), model="m").command
        assert found.output.rules and found.errors

    def test_the_reference_has_every_field(self) -> None:
        text = (ROOT / "docs" / "reference" / "presets.md").read_text()
        shown = set(re.findall(r"`\{?([a-z_]+)\}?[:`]", text))
        fields = {*AgentPreset.model_fields} - {"name"} | {
            "extends",
            *AgentOutputRule.model_fields,
            *AgentErrorRule.model_fields,
        }
        assert fields | {*EmittedEventKind, *PLACEHOLDERS, *SERVER_PLACEHOLDERS, *McpConfigFormat.model_fields} <= shown


RULE = "command: x\noutput:\n  format: json-lines\n  rules:\n    - "


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("comand: x", "1: comand: no such field; did you mean 'command'?"),
        ("[x]", "1: a preset is a mapping with a command, such as 'command: my-agent <{goal_file}'"),
        ("command: a: b", "1: not valid YAML: mapping values are not allowed here"),
        ("command: a\ncommand: b", "2: 'command' is written twice; keep one"),
        ("name: other", "1: name: must be 'mine', as the file is called"),
        ("extends: nothing", "1: extends: no preset 'nothing'"),
        ("extends: mine", "1: extends: no preset 'mine'"),
        ("extends: [codex]", "1: extends: must be the name of a preset"),
        ("command: ''", "1: command: must not be empty"),
        (
            "command: a {gaol_file}",
            "1: command: unknown placeholder {gaol_file}; did you mean {goal_file}?",
        ),
        (
            "command: a '{goal}'",
            "1: command: placeholders are quoted already in shell text; take the quotes around them away",
        ),
        ("env: {1a: b}", "1: env.1a: '1a' is no name of a variable"),
        ("env: {A: '{mcp_servers}'}", "1: env.A: unknown placeholder {mcp_servers}; known: goal, goal_file"),
        ("mcp: {remote: {url: '{ulr}'}}", "1: mcp.remote: unknown placeholder {ulr}; did you mean {url}?"),
        ("mcp: {remot: x}", "1: mcp.remot: no such field; did you mean 'remote'?"),
        ("max_goal: lots", "1: max_goal: 'lots' is not a size"),
        ("files: {notes: x}", "1: files.notes: must be the path of a file below {home} or {workspace} without '..'"),
        ("files:\n  '{home}/../x': x", "2: files.{home}/../x: must be the path of a file below {home}"),
        ("files:\n  '{home}/x': {jsn: 1}", "2: files.{home}/x.jsn: no such field; did you mean 'json'?"),
        (
            "files:\n  '{home}/x': {json: 1, text: a}",
            "2: files.{home}/x: needs one of 'text', 'json', 'toml' and 'raw'",
        ),
        ("errors: [{output: '('}]", "1: errors.0.output: is no regular expression"),
        ("errors: [{}]", "1: errors.0: needs either 'when' or 'output', and not both"),
        ("output: json", "1: output: must be 'lines' or 'json-lines', not 'json'"),
        ("output: {rules: [{emit: done}]}", "1: output: 'rules' need 'format: json-lines'"),
        (RULE + "{emit: text}", "5: output.rules.0: 'emit: text' needs 'text'"),
        (RULE + "{emit: txt}", "5: output.rules.0.emit: must be 'text', 'thinking', 'tool_call'"),
        (RULE + "{emit: done, text: a}", "5: output.rules.0: 'text' has no meaning with 'emit: done'"),
        (RULE + "{each: a}", "5: output.rules.0: 'each' and 'rules' go together"),
        (RULE + "{emit: done, when: {a..b: 1}}", "5: output.rules.0.when.a..b: must be a path such as message.content"),
        (
            RULE + "{emit: done, when: {a: {match: b}}}",
            "5: output.rules.0.when.a.match: no such field; did you mean 'matches'?",
        ),
    ],
)
def test_invalid_preset_is_reported_with_line_and_field(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        PresetLibrary([tmp_path]).get("mine")
    assert str(raised.value).startswith(f"{tmp_path / 'mine.yaml'}:{complaint}")
    assert "\n" not in str(raised.value)


class TestRendering:
    @pytest.mark.parametrize("agent", AGENTS)
    def test_long_goals_reach_the_agent_unchanged(self, agent: str) -> None:
        goal = "ü" * 2**19 + AWKWARD
        rendered = render_launch_plan(
            PresetLibrary().get(agent), task(agent).model_copy(update={"goal": goal}), model="some-model"
        )
        assert rendered.files["/home/agent/.paddock/goal.md"] == goal.encode()
        assert rendered.env["PADDOCK_GOAL_FILE"] == "/home/agent/.paddock/goal.md"
        assert len(rendered.command) < 1000

    @pytest.mark.parametrize("agent", AGENTS)
    def test_model_names_reach_the_agent_unchanged(self, agent: str) -> None:
        rendered = render_launch_plan(PresetLibrary().get(agent), task(agent), model=MODEL)
        assert isinstance(rendered.command, str)
        words = subprocess.run(
            ["sh", "-c", re.sub(r"^exec ", "printf '%s\\n' ", rendered.command).split(" <")[0]],
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip
        configured = [written(rendered, path) for path in rendered.files if path.endswith((".json", ".toml"))]
        variables = [value for name, value in rendered.env.items() if name != "PADDOCK_MODEL"]
        assert any(text.endswith(MODEL) for text in [*words, *variables, *_texts(configured)])

    @pytest.mark.parametrize("agent", AGENTS)
    def test_agent_without_a_model_is_refused(self, agent: str) -> None:
        with pytest.raises(InvalidInput, match=f"llm.model: the agent '{agent}' needs the name of a model"):
            render_launch_plan(PresetLibrary().get(agent), task(agent))

    @settings(max_examples=60, deadline=None)
    @given(goal=TEXT)
    def test_no_goal_breaks_a_command(self, goal: str) -> None:
        given_task = task("mine").model_copy(update={"goal": goal})
        in_shell = render_launch_plan(preset(command="printf %s {goal}", env={"GOAL": "<{goal}>"}), given_task)
        assert isinstance(in_shell.command, str)
        done = subprocess.run(["sh", "-c", in_shell.command], capture_output=True, check=True)
        assert done.stdout == goal.encode()
        assert in_shell.env["GOAL"] == f"<{goal}>"
        assert render_launch_plan(preset(command=["printf", "%s", "{goal}"]), given_task).command == (
            "printf",
            "%s",
            goal,
        )

    @settings(max_examples=60, deadline=None)
    @given(goal=TEXT, name=TEXT)
    def test_no_goal_breaks_a_file(self, goal: str, name: str) -> None:
        tree = {"a": "{goal}", "b": {"c-{goal}": [1, True, "x{goal}y"]}, name.replace("{", "("): "plain"}
        files = {"{home}/a.json": {"json": tree}, "{home}/a.toml": {"toml": tree}, "{home}/a.txt": "<{goal}> {other}"}
        rendered = render_launch_plan(preset(files=files), task("mine").model_copy(update={"goal": goal}))
        wanted = {"a": goal, "b": {f"c-{goal}": [1, True, f"x{goal}y"]}, name.replace("{", "("): "plain"}
        assert json.loads(rendered.files["/home/agent/a.json"]) == wanted
        assert tomllib.loads(rendered.files["/home/agent/a.toml"].decode()) == wanted
        assert rendered.files["/home/agent/a.txt"].decode() == f"<{goal}> {{other}}"

    @pytest.mark.parametrize(
        "fields",
        [{"command": "mine {goal}"}, {"command": ["mine", "{goal}"]}, {"env": {"GOAL": "{goal}"}}],
        ids=["shell", "words", "variable"],
    )
    def test_goal_above_the_argument_limit_is_refused(self, fields: dict[str, Any]) -> None:
        fits = task("mine").model_copy(update={"goal": "x" * (127 * 1024)})
        render_launch_plan(preset(**fields), fits)
        with pytest.raises(InvalidInput, match=r"make the goal shorter, or let the preset use {goal_file} and not"):
            render_launch_plan(preset(**fields), fits.model_copy(update={"goal": "x" * (128 * 1024)}))

    def test_preset_can_limit_the_goal_length(self) -> None:
        with pytest.raises(InvalidInput, match="takes goals of up to 10 bytes, and this one has"):
            render_launch_plan(preset(max_goal=10), task("mine"))

    def test_shell_braces_are_not_placeholders(self) -> None:
        rendered = render_launch_plan(preset(command="echo ${HOME} ${goal} {a,b} {env:KEY} {goal_file}"), task("mine"))
        assert rendered.command == "echo ${HOME} ${goal} {a,b} {env:KEY} /home/agent/.paddock/goal.md"

    def test_entrypoint_of_the_task_is_not_changed(self) -> None:
        given_task = task("script", entrypoint="./run.sh {goal_file}", env={"LEVEL": "3"})
        rendered = render_launch_plan(PresetLibrary().get("script"), given_task)
        assert rendered.command == "./run.sh {goal_file}"
        assert rendered.env["LEVEL"] == "3" and "PADDOCK_MODEL" not in rendered.env
        assert rendered.files[rendered.env["PADDOCK_GOAL_FILE"]] == AWKWARD.encode()

    def test_a_script_without_an_entrypoint_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="entrypoint: the agent 'script' starts nothing by itself"):
            render_launch_plan(PresetLibrary().get("script"), task("script"))

    def test_task_variables_override_preset_variables(self) -> None:
        rendered = render_launch_plan(preset(env={"A": "preset", "B": "preset"}), task("mine", env={"A": "task"}))
        assert (rendered.env["A"], rendered.env["B"]) == ("task", "preset")

    def test_custom_home_directory_is_used_everywhere(self) -> None:
        rendered = render_launch_plan(
            PresetLibrary().get("opencode"),
            task("opencode"),
            model="m",
            endpoints=SandboxServiceAddresses(home="/root"),
        )
        assert "/home/agent" not in repr(rendered)


REMOTE = {"name": "calc", "url": "https://tools.example/mcp", "headers": {"Authorization": "Bearer hidden"}}
LOCAL = {"name": "here", "command": ["python3", "/workspace/it's.py", "-v"], "env": {"LEVEL": "1"}}
MCP_CONFIG_LOCATIONS = {
    "claude-code": ("mcp.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "gemini-cli": (".gemini/settings.json", "mcpServers"),
    "opencode": ("opencode.json", "mcp"),
    "qwen-agent": ("mcp.json", "mcpServers"),
    "qwen-code": ("mcp.json", "mcpServers"),
}


class TestMcp:
    @pytest.mark.parametrize("agent", AGENTS)
    def test_mcp_servers_are_configured_for_each_agent(self, agent: str) -> None:
        rendered = render_launch_plan(PresetLibrary().get(agent), task(agent, mcp=[REMOTE, LOCAL]), model="m")
        ending, name = MCP_CONFIG_LOCATIONS[agent]
        servers = written(rendered, ending)[name]
        assert list(servers) == ["calc", "here"]
        assert "http://127.0.0.1:8422/calc" in servers["calc"].values()
        assert "http://127.0.0.1:8422/here" in servers["here"].values()

    @pytest.mark.parametrize("agent", AGENTS)
    def test_programs_that_may_need_secrets_are_started_by_the_agent(self, agent: str) -> None:
        given = task(agent, mcp=[LOCAL], secrets=["TOKEN"])
        ending, name = MCP_CONFIG_LOCATIONS[agent]
        here = written(render_launch_plan(PresetLibrary().get(agent), given, model="m"), ending)[name]["here"]
        words = here["command"] if isinstance(here["command"], list) else [here["command"], *here["args"]]
        assert words == LOCAL["command"] and LOCAL["env"] in here.values()

    @pytest.mark.parametrize("agent", AGENTS)
    def test_mcp_addresses_and_keys_stay_outside_the_sandbox(self, agent: str) -> None:
        rendered = render_launch_plan(PresetLibrary().get(agent), task(agent, mcp=[REMOTE]), model="m")
        assert "hidden" not in repr(rendered) and "tools.example" not in repr(rendered)

    @pytest.mark.parametrize("agent", AGENTS)
    def test_without_mcp_servers_the_configuration_is_empty(self, agent: str) -> None:
        ending, name = MCP_CONFIG_LOCATIONS[agent]
        assert written(render_launch_plan(PresetLibrary().get(agent), task(agent), model="m"), ending)[name] == {}

    def test_mcp_servers_can_be_command_arguments(self) -> None:
        shape = {"remote_words": ["--mcp", "{name}={url}"], "local_words": ["--run", "{command}"]}
        given_task = task("mine", mcp=[REMOTE, {"name": "here", "command": ["a b"]}])
        words = ("--mcp", "calc=http://127.0.0.1:8422/calc", "--mcp", "here=http://127.0.0.1:8422/here")
        assert render_launch_plan(preset(command=["x", "{mcp_words}", "y"], mcp=shape), given_task).command == (
            "x",
            *words,
            "y",
        )
        in_shell = render_launch_plan(preset(command="x {mcp_words} y", mcp=shape), given_task).command
        assert in_shell == f"x {' '.join(words)} y"
        # A preset without a way for addresses starts programs itself.
        local_only = preset(command="x {mcp_words} y", mcp={"local_words": ["--run", "{command}"]})
        given_task = task("mine", mcp=[{"name": "here", "command": ["a b"]}])
        assert render_launch_plan(local_only, given_task).command == "x --run 'a b' y"

    @pytest.mark.parametrize(
        ("server", "sort"), [(REMOTE, "servers with an address"), (LOCAL, "servers that are programs in the sandbox")]
    )
    def test_unsupported_mcp_server_is_refused(self, server: dict[str, Any], sort: str) -> None:
        with pytest.raises(InvalidInput, match=f"mcp.{server['name']}: the agent 'mine' has no way to use {sort}"):
            render_launch_plan(preset(), task("mine", mcp=[server]))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.items() for each in item for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []
