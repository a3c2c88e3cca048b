"""OpenTelemetry traces: spans of requests and batches, exported over OTLP."""
