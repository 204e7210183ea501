"""The Fleet page: what many hosts answered, which configuration serves them, and what it costs."""
