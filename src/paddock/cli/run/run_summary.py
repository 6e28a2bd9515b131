"""Prints the results of runs: a summary of one run or a table of several."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paddock.cli.output.agent_text import clean_terminal_line, clean_terminal_text
from paddock.cli.output.command_output import CommandOutput
from paddock.cli.output.formatting import format_cost, format_count, format_size, sanitize_text
from paddock.cli.run.failure_evidence import build_evidence_rows
from paddock.cli.run.run_progress import RUN_STAGES, SUCCEEDED_STATE
from paddock.cli.run.run_render import STATE_STYLES, format_quantity, format_run_duration, format_run_state

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_SHOWN_FILES = 12
_ENDS_WITH_EXIT_CODE = ("exit", "agent_error", "setup")
_RIGHT_ALIGNED = ("TURNS", "TOKENS", "COST", "TIME", "SCORE", "FILES")
_MIN_WIDTH_FOR_FIGURES = 100
_MIN_WIDTH_FOR_REASONS = 150
"""Terminal width from which reasons are a column instead of a line below."""
_MIN_NAME_WIDTH = 12


def open_rich_console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else 100_000
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def print_run_summary(
    run: Mapping[str, Any],
    *,
    folder: Path | None = None,
    copied_files: Mapping[str, Path] | None = None,
    full: bool = False,
    final_messages: Sequence[str] = (),
) -> None:
    """Print state and reason of a run, then one line per fact.

    `final_messages` are the agent's final messages, latest first.
    """
    from rich.text import Text

    out = open_rich_console()
    out.print(render_run_headline(run))
    found = build_run_summary_rows(run, folder, copied_files or {}, full, final_messages)
    indent = 4 + max(len(name) for name, _ in found)
    for name, value in found:
        # Paths are not wrapped, so that they can be copied.
        pieces = [value] if value.no_wrap else value.wrap(out, max(20, out.width - indent), overflow="fold")
        for piece in pieces:
            out.print(Text(f"  {name}".ljust(indent), style="bold") + piece, soft_wrap=True)
            name = ""


def render_run_headline(run: Mapping[str, Any]) -> Text:
    from rich.text import Text

    state = str(run.get("state"))
    result = run.get("result") or {}
    mark = {SUCCEEDED_STATE: "✓", "queued": "…", "running": "…"}.get(state, "✗")
    text = Text(
        f"{mark} {clean_terminal_line(str(run.get('name')))} {format_run_state(state)}",
        style=f"bold {STATE_STYLES.get(state, '')}",
    )
    if result:
        text.append(f" after {format_run_duration(float(result.get('seconds') or 0))}", style="default not bold")
        text.append(f": {clean_terminal_line(str(result.get('reason') or ''))}", style="default not bold")
    elif run.get("stage"):
        text.append(f" in stage {run['stage']}", style="default not bold")
    return text


def build_run_summary_rows(
    run: Mapping[str, Any],
    folder: Path | None,
    copied_files: Mapping[str, Path],
    full: bool,
    final_messages: Sequence[str] = (),
) -> Sequence[tuple[str, Text]]:
    from rich.text import Text

    result = run.get("result") or {}
    found: list[tuple[str, Text]] = [("run", Text(str(run.get("id"))))]
    if full:
        for name in ("group", "agent", "sandboxId", "cancelling"):
            if run.get(name) and not (name == "cancelling" and result):
                found.append((name.removesuffix("Id"), Text(clean_terminal_line(str(run[name])))))
    if int(run.get("attempt") or 1) > 1:
        found.append(("attempt", Text(str(run["attempt"]))))
    if result:
        found += [
            ("ended by", _end_text(result)),
            *_check_rows(result),
            *_model_rows(run, result, full),
            *_stage_time_rows(result, full),
        ]
    elif run.get("model"):
        found.append(("model", Text(clean_terminal_line(str(run["model"])))))
    found += _deliverable_rows(run, result, folder, copied_files)
    found += [
        (
            "missing",
            Text(
                f"{clean_terminal_line(str(each['path']))}: {clean_terminal_line(str(each['reason']))}",
                style="" if not each["required"] else "red",
            ),
        )
        for each in result.get("missing") or []
    ]
    found += build_evidence_rows(run, final_messages)
    if folder is not None:
        found.append(("folder", Text(abbreviate_home_directory(folder), no_wrap=True)))
    return found


def _end_text(result: Mapping[str, Any]) -> Text:
    from rich.text import Text

    how = str(result.get("endedBy"))
    # If Paddock ended the agent, for example at a timeout, its exit code is meaningless.
    code = result.get("exitCode") if how in _ENDS_WITH_EXIT_CODE else None
    return Text(format_run_state(how) if code is None else f"{format_run_state(how)}, exit code {code}")


def _check_rows(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    from rich.text import Text

    checks = result.get("checks") or []
    if result.get("score") is None:
        return []
    passed = sum(bool(check["passed"]) for check in checks)
    found = [
        ("score", Text(f"{float(result['score']):.2f}".rstrip("0").rstrip(".") + f", {passed} of {len(checks)} checks"))
    ]
    for check in checks:
        mark = Text("✓ ", style="green") if check["passed"] else Text("✗ ", style="red")
        note = "" if check["passed"] else f" (exit code {check.get('exitCode')})"
        found.append(
            (
                "",
                mark
                + Text(
                    f"{clean_terminal_line(str(check['name']))} {format_run_duration(float(check['seconds']))}{note}"
                ),
            )
        )
        if not check["passed"] and str(check.get("output") or "").strip():
            tail = clean_terminal_text(str(check["output"])).strip().splitlines()[-3:]
            found += [("", Text(f"  {line}", style="dim")) for line in tail]
    return found


def _model_rows(run: Mapping[str, Any], result: Mapping[str, Any], full: bool) -> list[tuple[str, Text]]:
    from rich.text import Text

    traffic = result.get("traffic") or {}
    requests = int(traffic.get("requests") or 0)
    if not requests:
        return [("model", Text("not used"))] if full or run.get("agent") else []
    if traffic.get("scripted"):
        text = Text("scripted model; no real model was used", style="yellow")
    else:
        text = Text(clean_terminal_line(str(traffic.get("model") or run.get("model") or "")))
    turns = int(result.get("turns") or 0)
    text.append(f"; {format_quantity(turns, 'turn')}, " if turns else "; ", style="default")
    text.append(
        f"{format_quantity(requests, 'request')}, {int(traffic.get('inputTokens') or 0):,} tokens in, "
        f"{int(traffic.get('outputTokens') or 0):,} out",
        style="default",
    )
    if traffic.get("cost") is not None:
        text.append(f", {format_cost(float(traffic['cost']))}", style="default")
    if traffic.get("failed"):
        text.append(
            f"; {traffic['failed']} failed: {clean_terminal_line(str(traffic.get('lastError') or ''))}", style="red"
        )
    return [("model", text)]


def _stage_time_rows(result: Mapping[str, Any], full: bool) -> list[tuple[str, Text]]:
    from rich.text import Text

    stages = result.get("stages") or {}
    least = 0.0 if full else 0.05
    parts = [
        f"{stage} {format_run_duration(float(stages[stage]))}"
        for stage in RUN_STAGES
        if float(stages.get(stage, -1)) >= least
    ]
    return [("time", Text(", ".join(parts)))] if parts else []


def _deliverable_rows(
    run: Mapping[str, Any], result: Mapping[str, Any], folder: Path | None, copied_files: Mapping[str, Path]
) -> list[tuple[str, Text]]:
    from rich.text import Text

    items = result.get("deliverables") or []
    found: list[tuple[str, Text]] = []
    for item in items[:_SHOWN_FILES]:
        path = str(item["path"])
        here = copied_files.get(path) or (folder / "deliverables" / path if folder is not None else None)
        shown = (
            abbreviate_home_directory(here)
            if here is not None and here.exists()
            else f"{path}  (paddock runs get {run.get('id')})"
        )
        amount = Text(f"{format_size(item['size'])}  ", style="dim", no_wrap=True)
        found.append(("" if found else "deliverables", amount + Text(sanitize_text(shown), style="default")))
        if item.get("note"):
            found.append(("", Text(clean_terminal_line(str(item["note"])), style="yellow")))
    if len(items) > _SHOWN_FILES:
        total = sum(int(item["size"]) for item in items)
        found.append(("", Text(f"and {len(items) - _SHOWN_FILES} more; {format_size(total)} in all", style="dim")))
    return found


def print_runs_table(runs: Sequence[Mapping[str, Any]], expected: int, directories: Sequence[Path] = ()) -> None:
    """Print a table of runs, their totals, and the directories of their deliverables."""
    from rich.text import Text

    out = open_rich_console()
    beside = out.width >= _MIN_WIDTH_FOR_REASONS
    lines = _table_lines(runs, out, beside)
    _write_lines(lines[:1])
    for run, line in zip(runs, lines[1:], strict=True):
        _write_lines([line])
        reason = clean_terminal_line(str((run.get("result") or {}).get("reason") or ""))
        if reason and not beside and run.get("state") != SUCCEEDED_STATE:
            for each in Text(reason, style="dim").wrap(out, max(20, out.width - 2)):
                out.print(Text("  ") + each)
    succeeded = sum(run.get("state") == SUCCEEDED_STATE for run in runs)
    scripted = any(((run.get("result") or {}).get("traffic") or {}).get("scripted") for run in runs)
    text = Text(f"{succeeded} of {expected} succeeded", style="bold green" if succeeded == expected else "bold red")
    if scripted:
        text.append("; scripted models, no real model was used", style="yellow")
    out.print(text)
    if directories:
        out.print(Text("output files:", style="dim"))
        for directory in directories[:_SHOWN_FILES]:
            out.print(Text(f"  {sanitize_text(abbreviate_home_directory(directory))}"), soft_wrap=True)
        if len(directories) > _SHOWN_FILES:
            parent = sanitize_text(abbreviate_home_directory(directories[0].parent))
            more = f"  and {len(directories) - _SHOWN_FILES} more in {parent}"
            out.print(Text(more, style="dim"), soft_wrap=True)


def _table_lines(runs: Sequence[Mapping[str, Any]], out: Console, beside: bool) -> list[str]:
    """Return the header and a line per run, with as many columns as fit; names are cut before ids."""
    from rich.cells import cell_len
    from rich.table import Table

    cells = [_table_cells(run) for run in runs]
    titles = ["STATE", "TURNS", "TIME", "RUN"]
    if out.width >= _MIN_WIDTH_FOR_FIGURES:
        titles = ["STATE", "TURNS", "TOKENS", "COST", "TIME", "SCORE", "FILES", "RUN"]
    taken = sum(2 + max([len(title), *(cell_len(row[title].plain) for row in cells)]) for title in titles)
    titles = ["NAME", *titles, *(["REASON"] if beside else [])]
    name_width = max(_MIN_NAME_WIDTH, out.width // 3 if beside else out.width - taken - 2)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        side: Literal["left", "right"] = "right" if title in _RIGHT_ALIGNED else "left"
        width = name_width if title == "NAME" else None
        table.add_column(title, no_wrap=True, overflow="ellipsis", max_width=width, justify=side)
    for row in cells:
        table.add_row(*(row[title] for title in titles))
    with out.capture() as capture:
        out.print(table)
    return capture.get().splitlines()


def _table_cells(run: Mapping[str, Any]) -> dict[str, Text]:
    from rich.text import Text

    state, result = str(run.get("state")), run.get("result") or {}
    traffic, score = result.get("traffic") or {}, result.get("score")
    tokens = int(traffic.get("inputTokens") or 0) + int(traffic.get("outputTokens") or 0)
    return {
        "NAME": Text(clean_terminal_line(str(run.get("name")))),
        "STATE": Text(format_run_state(state), style=STATE_STYLES.get(state, "")),
        "TURNS": Text(str(result.get("turns") or "")),
        "TOKENS": Text(format_count(tokens) if tokens else ""),
        "COST": Text(format_cost(traffic.get("cost"))),
        "TIME": Text(format_run_duration(float(result["seconds"])) if "seconds" in result else ""),
        "SCORE": Text("" if score is None else f"{float(score):.2f}"),
        "FILES": Text(str(len(result.get("deliverables") or []) or "")),
        "RUN": Text(str(run.get("id"))),
        "REASON": Text(clean_terminal_line(str(result.get("reason") or "")), style="dim"),
    }


def _write_lines(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))
    sys.stdout.flush()


def abbreviate_home_directory(path: Path) -> str:
    """Abbreviate the home directory as `~` on a terminal."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if sys.stdout.isatty() and path.is_relative_to(home) else str(path)


def print_file_content(out: CommandOutput, path: str, text: str) -> None:
    """Print a short text file, framed on a terminal."""
    shown = clean_terminal_text(text).rstrip("\n")
    if not sys.stdout.isatty():
        out.print_line(f"--- {path} ---\n{shown}\n---")
        return
    from rich import box
    from rich.panel import Panel
    from rich.text import Text

    open_rich_console().print(
        Panel(Text(shown), title=Text(clean_terminal_line(path)), title_align="left", box=box.ROUNDED, padding=(0, 1))
    )
