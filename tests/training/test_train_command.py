"""The commands train and evaluate: an interruption goes on, an output that cannot be written is one error."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfpass.predictors.learned import artefacts


def test_an_interrupted_training_goes_on_where_it_stopped(tmp_path, monkeypatch):
    from perfpass.training import areas, train

    runs = []

    def fit(name, folder, output, *, seed, quiet):
        if len(runs) == 1 and name == "second":
            runs.append("interrupted")
            raise KeyboardInterrupt
        runs.append(name)
        artefacts.write(Path(output), {"predictor": name}, {"x.bin": name.encode()})

    monkeypatch.setattr(areas, "AREAS", {"first": "", "second": ""})
    monkeypatch.setattr(areas, "module", lambda name: SimpleNamespace(train=partial(fit, name)))
    with pytest.raises(KeyboardInterrupt):
        train(output=str(tmp_path), quiet=True)
    train(output=str(tmp_path), resume=True, quiet=True)
    assert runs == ["first", "interrupted", "second"]
    train(output=str(tmp_path), resume=True, seed=1, quiet=True)
    assert runs[3:] == ["first", "second"]
    assert artefacts.Artefact(tmp_path / "second").read("x.bin") == b"second"


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--area", "mig"],
        ["train", "--predictor", "dippm"],
        ["evaluate", "--area", "mig"],
        ["records", "."],
    ],
)
def test_an_output_that_cannot_be_written_is_one_error_before_any_work(command, tmp_path, monkeypatch, capsys):
    from perfpass.cli import main
    from perfpass.records import corpus
    from perfpass.training import areas
    from perfpass.training.published import dippm

    def worked(*arguments, **options):
        pytest.fail("worked before it looked at the output")

    monkeypatch.setattr(areas, "module", lambda name: SimpleNamespace(train=worked, evaluate=worked))
    monkeypatch.setattr(dippm, "train", worked)
    monkeypatch.setattr(corpus, "read", worked)
    (tmp_path / "file").write_text("")
    assert main([*command, "--output", str(tmp_path / "file" / "out")]) != 0
    error = capsys.readouterr().err
    assert "nothing can be written there" in error and len(error.splitlines()) == 1


def test_a_look_at_the_output_leaves_what_another_run_is_writing(tmp_path):
    (tmp_path / ".results.new").mkdir()
    artefacts.check_writable(tmp_path / "results")
    assert [one.name for one in tmp_path.iterdir()] == [".results.new"]
