"""Models: the library, uploads and exports to ONNX."""
