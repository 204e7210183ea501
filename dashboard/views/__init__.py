"""One folder per page: `page.py` is the script, the other modules are its parts."""
