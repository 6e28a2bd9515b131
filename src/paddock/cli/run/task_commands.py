"""`paddock task`: validates, lists, shows and creates task files. Only `--ready` needs a server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import EXIT_FAILED, CliError, supports_colour
from paddock.cli.output.formatting import sanitize_text
from paddock.cli.run.task_display import (
    deliverable_text,
    format_task_input,
    print_task_problems,
    summarize_task,
    task_agent_names,
    task_file_report,
    task_image_name,
    task_model_names,
    task_report,
    workspace_relative_path,
)
from paddock.cli.run.task_lookup import (
    TASKS_DIRECTORY,
    find_task_file,
    find_task_files,
    list_sample_task_files,
    list_user_task_files,
    task_directories,
)
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from paddock.runs.presets import PresetLibrary
    from paddock.runs.tasks.task_file_loader import LoadedTask
    from paddock.runs.tasks.task_problems import InvalidTaskError

_SERVER_SECONDS = 5.0
"""Seconds to wait for the names of the server's models."""


def register_commands(app: typer.Typer) -> None:
    tasks = command_group("Validate, list and create task files.")
    app.add_typer(tasks, name="task")
    register_command(
        tasks,
        "validate",
        server=True,
        examples="""
            paddock task validate
            paddock task validate tasks/hello.yaml tasks/report.yaml
            paddock task validate --ready tasks/hello.yaml
        """,
    )(validate_tasks)
    register_command(tasks, "list", examples="paddock task list\npaddock task list --json")(list_tasks)
    register_command(tasks, "show", examples="paddock task show hello\npaddock task show tasks/hello.yaml --json")(
        show_task
    )
    register_command(
        tasks,
        "new",
        server=True,
        examples="""
            paddock task new report
            paddock task new report --agent codex -o work/report.yaml
        """,
    )(write_new_task)
    register_command(tasks, "schema", examples="paddock task schema > task.schema.json")(print_task_schema)


async def validate_tasks(
    cli: CliContext,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Task files.  [default: all that `list` finds]")
    ] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask the server whether each task can run now: model, secrets, image.")
    ] = False,
) -> int | None:
    """Validate task files: every field and the files they refer to.

    The exit code is 0 if all are valid and, with --ready, if all can run on the server.
    """
    from paddock.cli.run.run_planning import format_skipped_script_files, separate_model_scripts
    from paddock.runs.tasks.task_problems import InvalidTaskError

    presets = _load_presets(cli)
    paths, scripts = separate_model_scripts(find_task_files(cli, files)) if files else (list_user_task_files(cli), [])
    sys.stderr.write(format_skipped_script_files(scripts))
    found: list[tuple[Path, LoadedTask | InvalidTaskError]] = []
    for path in paths:
        try:
            found.append((path, _load_task_file(path, presets)))
        except InvalidTaskError as error:
            found.append((path, error))
    if not found:
        raise CliError("no task files in tasks/", hint="create one: paddock task new NAME")
    wrong = sum(isinstance(result, InvalidTaskError) for _, result in found)
    verdicts = await _fetch_server_verdicts(cli, found) if ready else {}
    unready = sum(not verdict["ready"] for verdict in verdicts.values())
    if cli.as_json:
        documents = [
            {**task_file_report(path, result), **({"server": verdicts[path]} if path in verdicts else {})}
            for path, result in found
        ]
        cli.out.print_json(
            {"valid": not wrong, **({"ready": not (wrong or unready)} if ready else {}), "files": documents}
        )
        return EXIT_FAILED if wrong or unready else None
    for path, result in found:
        if isinstance(result, InvalidTaskError):
            print_task_problems(path, result.problems)
        else:
            mark = "\x1b[32m✓\x1b[0m" if supports_colour(sys.stdout) else "✓"
            sys.stdout.write(f"{mark} {sanitize_text(f'{path}  {summarize_task(result.task)}')}\n")
            for issue in verdicts.get(path, {}).get("issues", ()):
                sys.stdout.write(sanitize_text(f"  {issue['level']}: {issue['field']}: {issue['message']}") + "\n")
    if wrong:
        count = f"{wrong} of {len(found)} task files" if len(found) > 1 else str(found[0][0])
        raise CliError(f"{count} {'are' if wrong > 1 else 'is'} not valid")
    if unready:
        raise CliError(f"{unready} of {len(found)} task files cannot run on the server now")
    return None


async def _fetch_server_verdicts(
    cli: CliContext, found: list[tuple[Path, LoadedTask | InvalidTaskError]]
) -> dict[Path, dict[str, Any]]:
    """Return the server's verdict on each valid task. Inputs are not sent; their files were checked locally."""
    from paddock.runs.tasks.task_problems import InvalidTaskError

    async with cli.open_client() as client:
        return {
            path: await client.post(
                "/v1/tasks/validate",
                {"task": result.task.model_dump(mode="json", exclude_defaults=True, exclude={"inputs"})},
            )
            for path, result in found
            if not isinstance(result, InvalidTaskError)
        }


def list_tasks(cli: CliContext) -> None:
    """List the tasks in ./tasks and in the configured directory, and the samples that ship with Paddock.

    The setting `runs.tasks` names that directory. Files that end in `.script.yaml` are scripted models, not tasks.
    """
    from paddock.cli.run.run_planning import format_skipped_script_files
    from paddock.runs.tasks.task_problems import InvalidTaskError

    presets = _load_presets(cli)
    sys.stderr.write(format_skipped_script_files(_script_files(cli)))
    documents: list[dict[str, Any]] = []
    rows = []
    own = list_user_task_files(cli)
    samples = list_sample_task_files(own)
    for path in [*own, *samples]:
        try:
            task = _load_task_file(path, presets).task
        except InvalidTaskError as error:
            documents.append(task_file_report(path, error))
            rows.append([path.stem, "✗", "", "", f"not valid; see: paddock task validate {path}"])
            continue
        documents.append({"file": str(path), "valid": True, "sample": path in samples, **task_report(task, presets)})
        back = ", ".join(workspace_relative_path(each.path) for each in task.deliverables)
        rows.append(
            [
                task.name,
                ", ".join(task_agent_names(task)),
                task_model_names(task, presets),
                back,
                " ".join(task.description.split()),
            ]
        )
    if cli.as_json:
        return cli.out.print_json({"tasks": documents})
    cli.out.print_table(["NAME", "AGENT", "MODEL", "DELIVERABLES", "DESCRIPTION"], rows)
    if samples and cli.out.is_interactive:
        count = f"{len(samples)} of these tasks ship" if own else "These tasks ship"
        sys.stderr.write(f"{count} with Paddock; run one: paddock run NAME. Create your own: paddock task new NAME\n")
    return None


def show_task(
    cli: CliContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Task name or file.", show_default=False)],
) -> None:
    """Show a task, including its defaults."""
    from paddock.config.units import format_duration
    from paddock.runs.tasks.matrix_expansion import expand_task_matrix

    presets = _load_presets(cli)
    loaded = _load_task_file(find_task_file(cli, name), presets)
    task = loaded.task
    runs = [run for run, _ in expand_task_matrix(task)]
    if cli.as_json:
        document = task.model_dump(mode="json", exclude_defaults=True)
        return cli.out.print_json({"file": str(loaded.path), "runs": runs, "task": document})
    end = [f"{key} {value}" for key, value in task.end.model_dump(exclude_defaults=True).items() if key != "timeout"]
    facts = [
        ("name", task.name),
        ("file", str(loaded.path)),
        ("description", " ".join(task.description.split())),
        ("agent", ", ".join(task_agent_names(task))),
        ("model", task_model_names(task, presets)),
        ("image", task.image or (task.kind if task.kind else "") or task_image_name(task, presets)),
        ("entrypoint", task.entrypoint if isinstance(task.entrypoint, str) else " ".join(task.entrypoint or ())),
        ("tools", ", ".join(server.name for server in task.mcp)),
        ("inputs", "\n".join(format_task_input(each) for each in task.inputs)),
        ("env", ", ".join(task.env)),
        ("secrets", ", ".join(task.secrets)),
        ("ends", ", ".join([f"after {format_duration(task.end.timeout)} at the latest", *end])),
        ("deliverables", "\n".join(deliverable_text(each.path, each.required) for each in task.deliverables)),
        ("verify", "\n".join(check.title for check in task.verify)),
        ("retries", str(task.retries.times) if task.retries.times else ""),
        ("runs", "\n".join(runs) if len(runs) > 1 else ""),
        ("goal", task.goal.strip()),
    ]
    return cli.out.print_facts([(key, value) for key, value in facts if value])


async def write_new_task(
    cli: CliContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the task.", show_default=False)],
    agent: Annotated[str, typer.Option("--agent", metavar="AGENT", help="Agent preset.")] = "claude-code",
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="File to write; - prints it.  [default: tasks/NAME.yaml]"),
    ] = None,
) -> None:
    """Create a commented task file to start from.

    An existing file is never overwritten.
    """
    from pydantic import TypeAdapter, ValidationError

    from paddock.config.yaml_files import closest_name
    from paddock.model.task import Identifier
    from paddock.runs.tasks.task_starter import render_starter_task_file

    try:
        TypeAdapter(Identifier).validate_python(name)
    except ValidationError as error:
        raise CliError(f"NAME: {error.errors()[0]['ctx']['error']}") from None
    presets = _load_presets(cli)
    known = presets.names()
    if agent not in known:
        near = closest_name(agent, known)
        raise CliError(f"there is no preset '{agent}'", hint=f"did you mean {near}?" if near else ", ".join(known))
    path = TASKS_DIRECTORY / f"{name}.yaml" if output is None else Path(output)
    shown = f"tasks/{name}.yaml" if output == "-" else str(path)
    text = render_starter_task_file(
        name, agent, shown, entrypoint=presets.get(agent).command is None, models=await _fetch_server_models(cli)
    )
    if output == "-":
        return cli.out.print_json({"text": text}) if cli.as_json else cli.out.print_text(text)
    _write_new_file(path, text, parents=output is None)
    if cli.as_json:
        return cli.out.print_json({"file": str(path), "name": name, "agent": agent})
    return cli.out.print_line(f"{path} created; edit it, then run it with: paddock run {path}")


def _write_new_file(path: Path, text: str, *, parents: bool) -> None:
    """Write a file that must not exist yet."""
    try:
        if parents:
            path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CliError(f"{path} already exists", hint="choose another file with -o") from None
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None


async def _fetch_server_models(cli: CliContext) -> list[str]:
    """Return the names of the server's models, the default first; empty if no server answers."""
    from paddock.cli.connection.server_finder import find_responding_server

    try:
        if not (cli.has_named_server or find_responding_server(cli.data_directory)):
            return []
        async with asyncio.timeout(_SERVER_SECONDS), cli.open_client() as client:
            models = (await client.get("/v1/server"))["models"]
    except (CliError, PaddockError, TimeoutError):
        return []
    if models["demo"]:
        return []  # The demo script answers chats, not tasks.
    names = [str(each["name"]) for each in models["items"]]
    return sorted(names, key=lambda name: name != models["default"])


def print_task_schema(cli: CliContext) -> None:
    """Print the JSON Schema of task files, for completion and validation in editors."""
    from paddock.runs.tasks.task_schema import task_json_schema

    cli.out.print_json(task_json_schema())


def _load_presets(cli: CliContext) -> PresetLibrary:
    from paddock.runs.presets import PresetLibrary

    return PresetLibrary(cli.load_config({}, only=["runs.presets"]).config.runs.presets)


def _script_files(cli: CliContext) -> list[Path]:
    """Return the scripted-model files beside the tasks."""
    from paddock.runs.tasks.task_file_loader import list_script_files

    return [path for directory in task_directories(cli) for path in list_script_files(directory)]


def _load_task_file(path: Path, presets: PresetLibrary) -> LoadedTask:
    from paddock.runs.tasks.task_file_loader import load_task_file

    return load_task_file(path, presets=presets)
