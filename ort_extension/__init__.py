"""perfpass inside ONNX Runtime: a session that knows what it costs before it reads a weight."""
