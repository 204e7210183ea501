"""Export: a result as YAML, Python or a file of a serving tool."""
