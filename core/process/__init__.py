"""The parent's end of child processes: start, talk, freeze and end them, and whose turn it is."""
