"""A checkpoint compiled to an ONNX graph, without torch."""
