"""Fuzzing of every input that is not ONNX: `python -m tests.fuzz --minutes N` (docs/internals/testing.md)."""
