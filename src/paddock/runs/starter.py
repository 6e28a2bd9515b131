"""The task file that `paddock task new` writes: valid as it is, with all there is to add as comments."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 5
_NO_MODELS = "# 'paddock llm list' lists the server's models. If it has none, set a provider's key or use a script.\n"
_TEXT = """\
# A task: what an agent is to do in a sandbox of its own, and what must come back.
#
#   paddock task validate {file}
#   paddock run {file}
#
# Fields that are commented out are part of the task once their '#' is taken away.
# All fields: docs/reference/task-file.md. For editors: paddock task schema > task.schema.json, and as first line here
# yaml-language-server: $schema=task.schema.json

name: {name}
description: Writes a short text about its input.

# Who works: claude-code, codex, opencode, gemini-cli, qwen-code, qwen-agent, script, or a preset of yours.
agent: {agent}

# What is started in the sandbox; left out, it is the preset's command.
{hash}entrypoint: cp notes.txt report.md

# What is to be done. A long goal can be a file beside this one: 'goal: {{file: goal.md}}'.
goal: |
  Read notes.txt and write report.md: a title, and three sentences that say the same as the notes.

# What is put into /workspace before the agent starts: files, directories, git repositories, texts.
inputs:
  - content: |
      The meeting moved to Thursday. Ana brings the figures. Lunch is at noon.
    target: notes.txt
#  - data/sales.csv
#  - {{source: data, target: tables}}
#  - {{git: .., ref: main, target: project}}

# What comes back. A run that lacks a required one has failed.
deliverables:
  - report.md
#  - {{path: "charts/*.png", required: false, max_size: 100Mi}}

# Shell commands that score the run, in the sandbox, after the agent. Exit code 0 passes.
verify:
  - test -s report.md
#  - {{name: has a title, run: "grep -q '^# ' report.md", required: false, weight: 2}}

# When it is over, whatever comes first. The entrypoint's exit ends it too.
end:
  timeout: 10m
#  turns: 30
#  silence: 5m
#  verified: true

# Which model, and how much of it. Left out, it is the one that the preset suggests, or else the server's default.
{models}\
# 'script' is a file that answers in the model's place where the server has no such model, so that no key is needed;
# what it looks like: docs/reference/scripts.md.
#llm:
#  model: {model}
#  script: {name}.script.yaml
#  tokens: 200000
#  cost: 0.50

# Tools over MCP: an address, or a program in the sandbox.
#mcp:
#  - https://tools.example.org/mcp
#  - {{name: notes, command: [python3, /workspace/server.py]}}

# Variables of the agent. Secrets are named here and kept by the server, in 'runs.secrets'.
#env: {{LANG: C.UTF-8}}
#secrets: [GITHUB_TOKEN]

# The sandbox: its image, unless the preset's will do, and what it may use.
#image: code
#resources: {{cpu: 2, memory: 2Gi, disk: 10Gi}}

# How often a run that failed or was lost is tried again.
#retries: 2
"""


def starter(name: str, agent: str, file: str, *, entrypoint: bool = False, models: Sequence[str] = ()) -> str:
    """Return a task file to start from; `file` is where it will be.

    With an `entrypoint` for agents that have no command. `models` are the server's, its default first.
    """
    known = f"# Models of the server, its default first: {', '.join(models[:SHOWN])}.\n" if models else _NO_MODELS
    model = models[0] if models else "fast"
    return _TEXT.format(name=name, agent=agent, file=file, hash="" if entrypoint else "#", models=known, model=model)
