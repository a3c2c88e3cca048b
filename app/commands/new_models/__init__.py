"""`models fetch` and `models make`: models that Keras or random weights give."""
