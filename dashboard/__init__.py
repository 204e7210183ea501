"""The browser interface of ORTune: it edits a spec, submits it to the scheduler and draws stored results.

Nothing here loads onnxruntime, onnx or torch: only worker processes open models.
"""
