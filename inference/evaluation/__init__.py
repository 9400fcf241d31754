"""Evaluation: what a model version must answer before it may go live, asked of its own deployment."""
