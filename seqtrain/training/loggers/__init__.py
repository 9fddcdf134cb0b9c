"""Loggers: W&B, TensorBoard and MLflow."""
