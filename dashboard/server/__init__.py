"""What Streamlit's server lacks: access checks, page policy, login, uploads, live streams, shutdown."""
