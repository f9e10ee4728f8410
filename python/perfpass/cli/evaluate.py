"""`perfpass evaluate`: the predictors on held-out records."""

from __future__ import annotations

from typing import Any

from perfpass.cli.options import add_json, new_command, print_json, texts, whole
from perfpass.cli.session import add_areas
from perfpass.errors import ArgumentError, needs


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "evaluate",
        run,
        "grade the predictors on held-out records: unseen models, families and devices",
        "examples:\n  perfpass evaluate --area inference --json\n  perfpass evaluate --output results\n"
        "  perfpass evaluate --predictors all --adaptation --jobs 2      every predictor side by side",
    )
    add_areas(command)
    compared = command.add_argument_group("predictors side by side (docs/research/comparison.md)")
    compared.add_argument("--predictors", type=texts, metavar="P,..", help="compare these instead: all, or a list")
    compared.add_argument("--tasks", type=texts, metavar="T,..", help="latency, training_step, ... (default: all)")
    compared.add_argument("--splits", type=texts, metavar="S,..", help="random, architecture, family, device (all)")
    compared.add_argument("--devices", type=whole, metavar="N", help="at most N unseen devices of each task")
    compared.add_argument("--adaptation", action="store_true", help="also curves of 0 to 128 records of a new device")
    compared.add_argument("--journal", metavar="FILE", help="what is fitted is kept there; an interrupted run goes on")
    compared.add_argument("--jobs", type=whole, default=1, metavar="N", help="processes (default: 1)")
    compared.add_argument("--tables-only", action="store_true", help="fit nothing: the tables of the journal")
    add_json(command, "tables")
    command.add_argument("--output", metavar="DIR", help="also write tables, JSON and pictures there")


def run(options: Any) -> int:
    """Prints the grades of the areas, or of predictors side by side."""
    with needs("train", "`perfpass evaluate`"):
        from perfpass import training

        report = (
            _compare(options)
            if options.predictors
            else training.evaluate(options.records, options.area, output=options.output, seed=options.seed)
        )
    if options.json:
        print_json(report.to_dict())
    else:
        print(report)
    return 0


def _compare(options: Any) -> Any:
    """Predictors side by side."""
    from perfpass.study.evaluate import evaluate as compare

    if options.area or options.records:
        raise ArgumentError("--predictors compares on the repository's records: leave out --area and --records")
    return compare(
        options.predictors,
        task_names=options.tasks,
        splits=options.splits,
        devices=options.devices,
        journal=options.journal,
        output=options.output,
        seed=options.seed,
        jobs=options.jobs,
        adaptation=options.adaptation,
        fit=not options.tables_only,
    )
