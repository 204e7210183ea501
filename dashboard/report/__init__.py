"""A report as one HTML file without external requests: text of `core.show.report`, plots of the charts.

`figures` selects the plots of a result, `page` writes the file, and the command line runs `__main__` in a
process of its own. No Streamlit here.
"""
