"""One folder per page: `page.py` is the script, beside it what only this page draws."""
