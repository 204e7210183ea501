"""A report as one HTML file that asks nobody for anything: words of `core.show.report`, plots of the charts.

`figures` says which plots belong to a result, `page` writes the file, `__main__` is the process that the
command line starts for it. No Streamlit here.
"""
