"""Results as text, tables and files.

No terminal, no Streamlit.
"""
