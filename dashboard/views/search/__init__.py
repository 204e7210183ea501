"""The Search page: its script, the form of its question, what there is to try, and the answer."""
