"""`paddock task`: task files checked, listed, shown and written. Only `--ready` needs a server."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import FAILED, CliError, wants_colour
from paddock.cli.output import plain, size
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from paddock.model.task import Input, Task
    from paddock.runs.presets import Presets
    from paddock.runs.problems import Problem, TaskError
    from paddock.runs.taskfile import Loaded

_HERE = Path("tasks")
_INDENT = " " * 9
_SERVER_PATIENCE = 5.0
"""Seconds to wait for the names of the server's models."""


def register(app: typer.Typer) -> None:
    tasks = group("Check, list and write task files.")
    app.add_typer(tasks, name="task")
    command(
        tasks,
        "validate",
        server=True,
        examples="""
            paddock task validate
            paddock task validate tasks/hello.yaml tasks/report.yaml
            paddock task validate --ready tasks/hello.yaml
        """,
    )(validate)
    command(tasks, "list", examples="paddock task list\npaddock task list --json")(list_)
    command(tasks, "show", examples="paddock task show hello\npaddock task show tasks/hello.yaml --json")(show)
    command(
        tasks,
        "new",
        server=True,
        examples="""
            paddock task new report
            paddock task new report --agent codex -o work/report.yaml
        """,
    )(new)
    command(tasks, "schema", examples="paddock task schema > task.schema.json")(schema)


async def validate(
    cli: Cli,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Task files; else all that `list` finds.")
    ] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask the server whether each task can run now: model, secrets, image.")
    ] = False,
) -> int | None:
    """Check task files: every field, and the files they name.

    The exit code says whether all are valid, and with --ready whether all can run on the server.
    """
    from paddock.cli.run_plan import note_of, without_scenarios
    from paddock.runs.problems import TaskError

    presets = _presets(cli)
    paths, scenarios = without_scenarios(files) if files else (_files(cli), [])
    sys.stderr.write(note_of(scenarios))
    found: list[tuple[Path, Loaded | TaskError]] = []
    for path in paths:
        try:
            found.append((path, _load(path, presets)))
        except TaskError as error:
            found.append((path, error))
    if not found:
        raise CliError("there are no task files in tasks/", hint="write one: paddock task new NAME")
    wrong = sum(isinstance(result, TaskError) for _, result in found)
    verdicts = await _verdicts(cli, found) if ready else {}
    unready = sum(not verdict["ready"] for verdict in verdicts.values())
    if cli.as_json:
        documents = [
            {**_document(path, result), **({"server": verdicts[path]} if path in verdicts else {})}
            for path, result in found
        ]
        cli.out.document(
            {"valid": not wrong, **({"ready": not (wrong or unready)} if ready else {}), "files": documents}
        )
        return FAILED if wrong or unready else None
    for path, result in found:
        if isinstance(result, TaskError):
            _tell(path, result.problems)
        else:
            mark = "\x1b[32m✓\x1b[0m" if wants_colour(sys.stdout) else "✓"
            sys.stdout.write(f"{mark} {plain(f'{path}  {_summary(result.task)}')}\n")
            for issue in verdicts.get(path, {}).get("issues", ()):
                sys.stdout.write(plain(f"  {issue['level']}: {issue['field']}: {issue['message']}") + "\n")
    if wrong:
        count = f"{wrong} of {len(found)} task files" if len(found) > 1 else str(found[0][0])
        raise CliError(f"{count} {'are' if wrong > 1 else 'is'} not valid")
    if unready:
        raise CliError(f"{unready} of {len(found)} task files cannot run on the server now")
    return None


async def _verdicts(cli: Cli, found: list[tuple[Path, Loaded | TaskError]]) -> dict[Path, dict[str, Any]]:
    """Return what the server says of each valid task. Inputs stay here: their files are checked already."""
    from paddock.runs.problems import TaskError

    async with cli.client() as client:
        return {
            path: await client.post(
                "/v1/tasks/validate",
                {"task": result.task.model_dump(mode="json", exclude_defaults=True, exclude={"inputs"})},
            )
            for path, result in found
            if not isinstance(result, TaskError)
        }


def list_(cli: Cli) -> None:
    """List the tasks in ./tasks and in the configured directory.

    The setting `runs.tasks` names that directory. Files that end in `.script.yaml` are scripted models, not tasks.
    """
    from paddock.cli.run_plan import note_of
    from paddock.runs.problems import TaskError

    presets = _presets(cli)
    sys.stderr.write(note_of(_scripts(cli)))
    documents: list[dict[str, Any]] = []
    rows = []
    for path in _files(cli):
        try:
            task = _load(path, presets).task
        except TaskError as error:
            documents.append(_document(path, error))
            rows.append([path.stem, "✗", "", "", f"not valid; see: paddock task validate {path}"])
            continue
        documents.append({"file": str(path), "valid": True, **_about(task, presets)})
        back = ", ".join(_relative(each.path) for each in task.deliverables)
        rows.append(
            [task.name, ", ".join(_agents(task)), _model(task, presets), back, " ".join(task.description.split())]
        )
    if cli.as_json:
        return cli.out.document({"tasks": documents})
    if not rows:
        return cli.out.line("no tasks in tasks/; write one with: paddock task new NAME")
    return cli.out.table(["NAME", "AGENT", "MODEL", "DELIVERABLES", "DESCRIPTION"], rows)


def show(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A task's name, or its file.", show_default=False)],
) -> None:
    """Show what a task says, with what it leaves to defaults."""
    from paddock.config.units import format_duration
    from paddock.runs.matrix import expand

    presets = _presets(cli)
    loaded = _load(_find(cli, name), presets)
    task = loaded.task
    runs = [run for run, _ in expand(task)]
    if cli.as_json:
        document = task.model_dump(mode="json", exclude_defaults=True)
        return cli.out.document({"file": str(loaded.path), "runs": runs, "task": document})
    end = [f"{key} {value}" for key, value in task.end.model_dump(exclude_defaults=True).items() if key != "timeout"]
    facts = [
        ("name", task.name),
        ("file", str(loaded.path)),
        ("description", " ".join(task.description.split())),
        ("agent", ", ".join(_agents(task))),
        ("model", _model(task, presets)),
        ("image", task.image or (task.kind if task.kind else "") or _image(task, presets)),
        ("entrypoint", task.entrypoint if isinstance(task.entrypoint, str) else " ".join(task.entrypoint or ())),
        ("tools", ", ".join(server.name for server in task.mcp)),
        ("inputs", "\n".join(_origin(each) for each in task.inputs)),
        ("env", ", ".join(task.env)),
        ("secrets", ", ".join(task.secrets)),
        ("ends", ", ".join([f"after {format_duration(task.end.timeout)} at the latest", *end])),
        ("deliverables", "\n".join(_back(each.path, each.required) for each in task.deliverables)),
        ("verify", "\n".join(check.title for check in task.verify)),
        ("retries", str(task.retries.times) if task.retries.times else ""),
        ("runs", "\n".join(runs) if len(runs) > 1 else ""),
        ("goal", task.goal.strip()),
    ]
    return cli.out.facts([(key, value) for key, value in facts if value])


async def new(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the task is called.", show_default=False)],
    agent: Annotated[str, typer.Option("--agent", metavar="AGENT", help="Who works: a preset.")] = "claude-code",
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to; - prints it.  [default: tasks/NAME.yaml]"),
    ] = None,
) -> None:
    """Write a task file to start from, with comments.

    A file that is there is never overwritten.
    """
    from pydantic import TypeAdapter, ValidationError

    from paddock.config.yamls import nearest
    from paddock.model.task import Name
    from paddock.runs.starter import starter

    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise CliError(f"NAME: {error.errors()[0]['ctx']['error']}") from None
    presets = _presets(cli)
    known = presets.names()
    if agent not in known:
        near = nearest(agent, known)
        raise CliError(f"there is no preset '{agent}'", hint=f"did you mean {near}?" if near else ", ".join(known))
    path = _HERE / f"{name}.yaml" if output is None else Path(output)
    shown = f"tasks/{name}.yaml" if output == "-" else str(path)
    text = starter(name, agent, shown, entrypoint=presets.get(agent).command is None, models=await _models(cli))
    if output == "-":
        return cli.out.document({"text": text}) if cli.as_json else cli.out.write(text)
    _write_new(path, text, parents=output is None)
    if cli.as_json:
        return cli.out.document({"file": str(path), "name": name, "agent": agent})
    return cli.out.line(f"{path} written; change it, then run it with: paddock run {path}")


def _write_new(path: Path, text: str, *, parents: bool) -> None:
    """Write a file that must not exist yet."""
    try:
        if parents:
            path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CliError(f"{path} is there already, and is left as it is", hint="choose another file with -o") from None
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None


async def _models(cli: Cli) -> list[str]:
    """Return the names of the server's models, the default first; none where no server answers."""
    from paddock.cli.run_server import answering

    try:
        if not (cli.names_server or answering(cli.data)):
            return []
        async with asyncio.timeout(_SERVER_PATIENCE), cli.client() as client:
            models = (await client.get("/v1/server"))["models"]
    except (CliError, PaddockError, TimeoutError):
        return []
    if models["demo"]:
        return []  # The demo script answers chats, not tasks.
    names = [str(each["name"]) for each in models["items"]]
    return sorted(names, key=lambda name: name != models["default"])


def schema(cli: Cli) -> None:
    """Print the JSON Schema of task files, with which editors complete and check them."""
    from paddock.runs.schema import schema

    cli.out.document(schema())


def _presets(cli: Cli) -> Presets:
    from paddock.runs.presets import Presets

    return Presets(cli.load({}, only=["runs.presets"]).config.runs.presets)


def _files(cli: Cli) -> list[Path]:
    from paddock.runs.taskfile import task_files

    return [path for directory in _directories(cli) for path in task_files(directory)]


def _scripts(cli: Cli) -> list[Path]:
    """Scripted-model files beside the tasks."""
    from paddock.runs.taskfile import script_files

    return [path for directory in _directories(cli) for path in script_files(directory)]


def _directories(cli: Cli) -> list[Path]:
    configured = cli.load({}, only=["runs.tasks"]).config.runs.tasks
    return [_HERE, *([configured] if configured is not None and configured.resolve() != _HERE.resolve() else [])]


def _load(path: Path, presets: Presets) -> Loaded:
    from paddock.runs.taskfile import load_task

    return load_task(path, presets=presets)


def _find(cli: Cli, name: str) -> Path:
    """The file that is meant by a path, or by the name of a task or of a file."""
    from paddock.cli.find import Ambiguous
    from paddock.config.yamls import nearest
    from paddock.runs.taskfile import SUFFIXES, name_of

    if "/" in name or name.endswith(SUFFIXES):
        return Path(name)
    files = {path: name_of(path) for path in _files(cli)}
    found = [path for path, own in files.items() if own == name] or [path for path in files if path.stem == name]
    if len(found) > 1:
        raise Ambiguous(f"{name} is the name of {', '.join(map(str, found))}", hint="name the file")
    if not found:
        near = nearest(name, [own for own in files.values() if own])
        hint = f"did you mean {near}?" if near else "see which there are: paddock task list"
        raise CliError(f"there is no task {name}", hint=hint)
    return found[0]


def _tell(path: Path, problems: tuple[Problem, ...]) -> None:
    """All that is wrong: one thing a line as compilers have it, or on a terminal, under the lines of the file."""
    if not wants_colour(sys.stdout):
        for problem in problems:
            sys.stdout.write(f"{plain(str(problem))}\n")
        return
    import shutil
    import textwrap

    width = max(40, shutil.get_terminal_size().columns - 1)
    sys.stdout.write(f"\x1b[31m✗\x1b[0m {plain(str(path))}\n")
    before: tuple[str, int | None] = (str(path), None)
    for problem in problems:
        if (problem.file, problem.line) != before and problem.line is not None:
            other = "" if problem.file == str(path) else f"{problem.file}: "
            shown = plain(f"{problem.line:>6} │ {other}{_line(problem)}")
            sys.stdout.write(f"\x1b[2m{shown[:width]}\x1b[0m\n")
        before = (problem.file, problem.line)
        field = f"{problem.field}: " if problem.field else ""
        text = textwrap.fill(
            plain(f"{field}{problem.message}"), width, initial_indent=_INDENT, subsequent_indent=_INDENT
        )
        start = len(_INDENT) + len(plain(field))
        sys.stdout.write(f"\x1b[1m{text[:start]}\x1b[0m{text[start:]}\n")


def _line(problem: Problem) -> str:
    """The line of a file that a problem is about."""
    try:
        with open(problem.file, encoding="utf-8", errors="replace") as file:
            return next((text for i, text in enumerate(file, 1) if i == problem.line), "").rstrip()
    except OSError:
        return ""


def _document(path: Path, result: Loaded | TaskError) -> dict[str, Any]:
    from paddock.runs.problems import TaskError

    if isinstance(result, TaskError):
        problems = [asdict(problem) for problem in result.problems]
        return {"file": str(path), "valid": False, "problems": problems}
    return {"file": str(path), "valid": True, "name": result.task.name}


def _about(task: Task, presets: Presets) -> dict[str, Any]:
    return {
        "name": task.name,
        "description": task.description,
        "agents": list(task.matrix.agents)
        if task.matrix and task.matrix.agents
        else [task.agent]
        if task.agent
        else [],
        "model": _model(task, presets) or None,
        "deliverables": [each.path for each in task.deliverables],
    }


def _agents(task: Task) -> list[str]:
    several = task.matrix.agents if task.matrix else ()
    return list(several) or ([task.agent] if task.agent else [])


def _summary(task: Task) -> str:
    from paddock.runs.matrix import expand

    runs = len(expand(task))
    parts = [
        ", ".join(_agents(task)) or "a program of its own",
        _count(len(task.inputs), "input"),
        _count(len(task.deliverables), "deliverable"),
        _count(len(task.verify), "check"),
        _count(runs, "run") if runs > 1 else "",
    ]
    return f"{task.name}: {', '.join(part for part in parts if part)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else ""


def _model(task: Task, presets: Presets) -> str:
    """The model a task names, or else the one that its agent's preset suggests."""
    if task.matrix and task.matrix.models:
        return ", ".join(task.matrix.models)
    if task.llm.model or task.agent is None:
        return task.llm.model or ""
    return presets.get(task.agent).model or ""


def _image(task: Task, presets: Presets) -> str:
    return presets.get(task.agent).image or "" if task.agent else ""


def _origin(each: Input) -> str:
    to = f" → {_relative(each.target)}" if each.target else ""
    if each.content is not None:
        return f"{size(len(each.content.encode()))} of text{to}"
    return f"{each.source or f'git {each.git}'}{f' at {each.ref}' if each.ref else ''}{to}"


def _back(path: str, required: bool) -> str:
    return _relative(path) + ("" if required else "  (optional)")


def _relative(path: str) -> str:
    """A path in the sandbox as people write it."""
    from paddock.model.task import WORKSPACE

    return path.removeprefix(f"{WORKSPACE}/")
