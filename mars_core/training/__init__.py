"""Training: data, the dual-stream objective, the trainer, and what it reports."""
