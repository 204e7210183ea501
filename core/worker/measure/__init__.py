"""Measurement in a worker: the contestant of a comparison, and separate profiling passes. Imports nothing."""
