"""What is kept of calls beside the metrics: samples, the log, rollouts' counts."""
