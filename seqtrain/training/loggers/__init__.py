"""Loggers: W&B, TensorBoard, MLflow and Trackio."""
