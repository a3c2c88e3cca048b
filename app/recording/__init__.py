"""What is kept of calls beside the metrics: captured ones, the log, rollouts' counts."""
