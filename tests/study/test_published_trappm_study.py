"""TraPPM's study: two clusters stay apart in the picture, epochs and transfers are counted."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.errors import ArgumentError


def test_two_clusters_stay_apart_in_the_picture(tmp_path):
    from perfpass.study import trappm_tsne as tsne

    points = np.random.default_rng(0).normal(size=(60, 6))
    points[30:] += 8.0
    names = ["a"] * 30 + ["b"] * 30
    near = tsne.affinities(points, 10.0)
    assert near.sum() == pytest.approx(1.0) and near[:30, 30:].sum() < 1e-3
    places = tsne.tsne(points, perplexity=10.0, iterations=300)
    assert tsne.neighbours_alike(places, names) == 1.0 == tsne.neighbours_alike(points, names)
    tsne.picture(places, names, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 2000
    with pytest.raises(ArgumentError, match="perplexity of at most 20, got 30"):
        tsne.tsne(points)


def test_the_study_counts_epochs_and_transfers():
    from perfpass.study import trappm as study

    assert study.epochs_to([0.5, 0.3, 0.2], 0.3) == 2 and study.epochs_to([0.5], 0.3) == 2
    same = {"median_ape": 0.1, "kendall_tau": 0.9, "processor_seconds": 3.0}
    done = {
        "trappm 1337": {"mape": 0.1, "valid": [0.3, 0.1], **same},
        "trappm-random 1337": {"mape": 0.2, "valid": [0.3, 0.2], **same},
        "transfer trappm 1337": {"mape_by_records": {"0": 0.5, "8": 0.4}},
    }
    found = study.summary(done)
    assert found["convergence"]["epochs_to_reach"] == {"trappm": [2], "trappm-random": [2]}
    assert found["transfer"]["trappm"] == {"0": 0.5, "8": 0.4} and found["methods"]["trappm"]["mean"] == 0.1
