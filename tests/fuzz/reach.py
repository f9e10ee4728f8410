"""Which lines of the readers the kept inputs reach (coverage.py), and which of a campaign's inputs reach more."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import coverage

MOST_KEPT = 40  # inputs of a target that are kept for the lines that they reach
_LONGEST_KEPT = 8000  # bytes


def counting() -> coverage.Coverage:
    """A count of lines that has begun. Before perfpass is imported: else its definitions count as not reached."""
    import coverage

    counted = coverage.Coverage(data_file=None, source=[str(_installed("python/perfpass"))])
    counted.start()
    return counted


def _installed(module: str) -> Path:
    """Where a file of the sources is that runs: tests run the installed package."""
    spec = find_spec("perfpass")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / Path(module).relative_to("python/perfpass")


def report(names: list[str], place: Path, counted: coverage.Coverage) -> None:
    """Prints lines reached by module, by all kept inputs of the targets and what the last campaign left of each."""
    from . import corpus
    from .oracle import judged
    from .targets import TARGETS

    modules: dict[str, None] = {}
    for name in names:
        target = TARGETS[name]
        left = (path.read_bytes() for path in sorted((place / name / "inputs").glob("*")))
        for data in [*target.seeds(), *(one.data for one in corpus.read(name)), *left]:
            judged(target.run, data, target.seconds)
        modules |= dict.fromkeys(target.modules)
    counted.stop()
    for module in modules:
        _, statements, _, missing, text = counted.analysis2(str(_installed(module)))
        share = 100 * (1 - len(missing) / len(statements))
        print(f"{module.removeprefix('python/perfpass/'):42} {len(statements):4} {share:5.1f} %  {text}")


def keep(names: list[str], place: Path) -> None:
    """Keeps, beside the problems, the inputs of the last campaign that reach lines which no other kept input does."""
    import coverage

    from . import corpus
    from .oracle import judged
    from .targets import TARGETS

    for name in names:
        target = TARGETS[name]
        kept = [one for one in corpus.read(name) if one.why.startswith("found")]
        sure = [*target.seeds(), *(one.data for one in kept)]
        paths = sorted((place / name / "inputs").glob("*"), key=lambda path: path.stat().st_size)
        more = [data for path in paths if len(data := path.read_bytes()) <= _LONGEST_KEPT]
        files = [str(_installed(module)) for module in target.modules]
        if not files:
            corpus.write(name, kept)
            continue
        counted = coverage.Coverage(data_file=None, include=files, branch=True)
        counted.start()
        right = set()  # a problem that is not mended yet would fail the tests
        for number, data in enumerate([*sure, *more]):
            counted.switch_context(str(number))
            if judged(target.run, data, target.seconds)[1] is None:
                right.add(number)
        counted.stop()
        found = counted.get_data()
        reached: set[tuple[str, tuple[int, int]]] = set()
        for number, data in enumerate([*sure, *more]):
            if number not in right:
                continue
            found.set_query_context(str(number))
            arcs = {(path, arc) for path in files for arc in found.arcs(path) or ()}
            new = arcs - reached
            reached |= arcs
            if number >= len(sure) and new and len(kept) < MOST_KEPT + len(sure):
                path, (_, line) = min(new)
                kept.append(corpus.Kept(data, f"reaches {Path(path).name}:{abs(line)}"))
        corpus.write(name, kept)
        print(f"{name:24} {len(kept):4} kept")
