"""Jobs, their queue, and the thread that runs batches. Knows neither HTTP nor Keras."""
