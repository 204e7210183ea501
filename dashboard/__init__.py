"""The browser side of ORTune: it edits a spec, hands it to the scheduler and draws what the store holds.

Nothing here loads onnxruntime, onnx or torch: models are opened in worker processes only.
"""
