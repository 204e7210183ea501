"""Who may speak to the server, what a page may do, uploads, and its end: what Streamlit leaves open."""
