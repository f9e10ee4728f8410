"""`perfpass train`: measured records -> artefacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfpass.cli.options import new_command
from perfpass.cli.session import add_areas
from perfpass.errors import ArgumentError, UnsupportedError, needs


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "train",
        run,
        "fit the predictors on measured records and write their artefacts",
        "Needs pandas, pyarrow, scipy, xgboost and matplotlib. The records are described in docs/reference/records.md.",
    )
    add_areas(command)
    command.add_argument("-o", "--output", metavar="DIR", help="where to write (default: the shipped artefacts' place)")
    command.add_argument("--resume", action="store_true", help="keep artefacts made from the same records and program")
    command.add_argument(
        "--predictor",
        metavar="NAME",
        help="train one compared predictor instead (docs/predictors/published.md), into DIR itself",
    )
    command.add_argument(
        "--published", action="store_true", help="with --predictor: sizes and settings as published (needs a GPU)"
    )
    command.add_argument(
        "--base", metavar="FOLDER", help="with --predictor graph-language: a causal language model to stand on"
    )


def run(options: Any) -> int:
    """Trains the areas, or one compared predictor."""
    with needs("train", "`perfpass train`"):
        from perfpass import training

        if options.predictor is not None:
            return _train_predictor(options)
        if options.published or options.base:
            raise ArgumentError("--published and --base belong to --predictor NAME")
        training.train(options.records, options.output, options.area, seed=options.seed, resume=options.resume)
    return 0


def _train_predictor(options: Any) -> int:
    """A compared predictor, by its name."""
    from importlib import import_module

    from perfpass.predictors.learned import artefacts
    from perfpass.training.tasks.methods import METHODS, method

    if options.area or options.resume:
        raise ArgumentError("--predictor trains one predictor: leave out --area and --resume (it goes on by itself)")
    method(options.predictor)
    module = import_module(METHODS[options.predictor])
    if not hasattr(module, "train"):
        raise UnsupportedError(f"{options.predictor} is trained within `perfpass evaluate` alone")
    more: dict[str, Any] = {"base": options.base} if options.base else {}
    if more and options.predictor != "graph-language":
        raise ArgumentError("--base is the language model of graph-language; no other predictor stands on one")
    artefacts.check_writable(Path(options.output) if options.output else artefacts.shipped(options.predictor))
    place = module.train(
        options.predictor, options.records, options.output, seed=options.seed, published=options.published, **more
    )
    print(place)
    return 0
