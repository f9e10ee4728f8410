"""`perfpass annotate`: the prediction in a model's metadata, and every way in which writing it may go wrong."""

from __future__ import annotations

import json

import pytest

import perfpass
from perfpass import annotation
from perfpass.errors import FormatError


@pytest.fixture(scope="module")
def predictions(examples):
    """The predictions of one model for two devices, one of them a MIG slice."""
    return [
        perfpass.predict(examples / "resnet50.onnx", device=name) for name in ("rtx-4090", "a100-sxm4-80gb:2g.20gb")
    ]


def test_metadata_holds_every_prediction_for_programs_and_a_line_per_figure_for_people(predictions):
    noted = annotation.Annotation()
    for prediction in predictions:
        noted = noted.with_prediction(prediction, model_bytes=7)
    metadata = noted.to_metadata()
    assert annotation.from_metadata({"other": "key", **metadata}) == noted
    assert list(noted.predictions) == ["rtx-4090", "a100-sxm4-80gb:2g.20gb"]
    assert noted.predictions["rtx-4090"] == predictions[0].to_dict()
    assert metadata["perfpass.latency_ms"].count(" on ") == 2
    assert metadata["perfpass.workload"].startswith("batch 1, fp32, inference, torch, nchw on rtx-4090; ")
    assert all(key.startswith("perfpass.") and isinstance(value, str) for key, value in metadata.items())


def test_a_second_prediction_for_a_device_takes_the_place_of_the_first(predictions):
    noted = annotation.Annotation().with_prediction(predictions[0], 7).with_prediction(predictions[0])
    assert list(noted.predictions) == ["rtx-4090"] and noted.model_bytes == {}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"schema_version": 2}', "schema version 2"),
        ("[]", "schema version None"),
        ('{"schema_version": 1}', "no predictions"),
        ('{"schema_version": 1, "predictions": {"x": {}}}', "no predictions"),
        ('{"schema_version": 1, "predictions": {}, "model_bytes": {"x": "9"}}', "no predictions"),
    ],
)
def test_damaged_metadata_is_a_format_error_that_says_what_is_wrong(value, says):
    with pytest.raises(FormatError, match=says):
        annotation.from_metadata({annotation.PREDICTIONS_KEY: value})


def test_a_prediction_of_wrong_types_is_refused(predictions):
    stored = json.loads(annotation.Annotation().with_prediction(predictions[0]).to_metadata()["perfpass.predictions"])
    stored["predictions"]["rtx-4090"]["latency_ms"]["median"] = [1]
    with pytest.raises(FormatError, match="no predictions"):
        annotation.from_metadata({annotation.PREDICTIONS_KEY: json.dumps(stored)})
