"""Renders results as text, tables and files, without terminal or Streamlit."""
