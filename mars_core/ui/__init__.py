"""The page. Only `demo.py` knows Gradio; the rest is plain Python."""
