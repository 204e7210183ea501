"""From a result to what a person takes along. No terminal, no Streamlit."""
