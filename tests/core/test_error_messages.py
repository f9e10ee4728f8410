"""An error is one line with an end, whatever it quotes."""

import pytest

from perfpass import errors


@pytest.mark.parametrize("kind", [errors.ArgumentError, errors.FileError, errors.DeviceError, errors.UnsupportedError])
def test_a_message_is_one_line_and_keeps_its_begin_and_end(kind):
    assert str(kind("model.onnx: no such file")) == "model.onnx: no such file"
    assert str(kind("it says:\n  first\r\n\u2028second")) == "it says: first  second"
    text = str(kind(f"config.json: field {'x' * 100_000} is wrong; allowed are 1 and 2"))
    assert len(text) < errors.LONGEST_MESSAGE + 50
    assert text.startswith("config.json: field x") and text.endswith("allowed are 1 and 2")
