"""Graph: the nodes of a model, before and after ONNX Runtime's optimizations."""
