"""Task file of `paddock task new`: valid as it is, with all options as comments."""

from __future__ import annotations

from collections.abc import Sequence

MAX_LISTED_MODELS = 5
_NO_MODELS = "# 'paddock llm list' lists the server's models. If it has none, set a provider's key or use a script.\n"
_TEMPLATE = """\
# A task: the goal of an agent in a sandbox of its own, and the expected deliverables.
#
#   paddock task validate {file}
#   paddock run {file}
#
# Uncomment a field to make it part of the task.
# All fields: paddock task schema. For editors: paddock task schema > task.schema.json, and as first line here
# yaml-language-server: $schema=task.schema.json

name: {name}
description: Writes a short text about its input.

# The agent: claude-code, codex, opencode, gemini-cli, qwen-code, qwen-agent, script, or a preset of yours.
agent: {agent}

# Command to start in the sandbox. Default: the preset's command.
{hash}entrypoint: cp notes.txt report.md

# The goal of the agent. A long goal can be a file beside this one: 'goal: {{file: goal.md}}'.
goal: |
  Read notes.txt and write report.md: a title, and three sentences that say the same as the notes.

# Inputs, copied to /workspace before the agent starts: files, directories, git repositories, texts.
inputs:
  - content: |
      The meeting moved to Thursday. Ana brings the figures. Lunch is at noon.
    target: notes.txt
#  - data/sales.csv
#  - {{source: data, target: tables}}
#  - {{git: .., ref: main, target: project}}

# Files to collect. A run without a required file fails.
deliverables:
  - report.md
#  - {{path: "charts/*.png", required: false, max_size: 100Mi}}

# Shell commands that score the run, in the sandbox, after the agent. Exit code 0 passes.
verify:
  - test -s report.md
#  - {{name: has a title, run: "grep -q '^# ' report.md", required: false, weight: 2}}

# End conditions; the first one that is met ends the run, as does the exit of the entrypoint.
end:
  timeout: 10m
#  turns: 30
#  silence: 5m
#  verified: true

# Model and limits. Default: the model that the preset suggests, or else the server's default.
{models}\
# 'script' is a file that answers instead of the model if the server does not have the model, so that no key is
# needed. The samples of 'paddock task list' have one each.
#llm:
#  model: {model}
#  script: {name}.script.yaml
#  tokens: 200000
#  cost: 0.50

# MCP tools: a URL, or a program in the sandbox.
#mcp:
#  - https://tools.example.org/mcp
#  - {{name: notes, command: [python3, /workspace/server.py]}}

# Variables of the agent. Secrets are named here; their values are in the server's 'runs.secrets'.
#env: {{LANG: C.UTF-8}}
#secrets: [GITHUB_TOKEN]

# Image of the sandbox (default: the preset's) and its resources.
#image: code
#resources: {{cpu: 2, memory: 2Gi, disk: 10Gi}}

# Retries of a failed or lost run.
#retries: 2
"""


def render_starter_task_file(
    name: str, agent: str, file: str, *, entrypoint: bool = False, models: Sequence[str] = ()
) -> str:
    """Return a starter task file for the path `file`.

    With an `entrypoint` for agents that have no command. `models` are the server's, its default first.
    """
    known = (
        f"# Models of the server, its default first: {', '.join(models[:MAX_LISTED_MODELS])}.\n"
        if models
        else _NO_MODELS
    )
    model = models[0] if models else "fast"
    return _TEMPLATE.format(
        name=name, agent=agent, file=file, hash="" if entrypoint else "#", models=known, model=model
    )
