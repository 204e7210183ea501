"""The Search page: its script, the form, the search space, and the result."""
