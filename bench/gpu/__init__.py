"""`python -m bench.gpu`: the article's experiment on this machine's GPU, with JAX.

`model` makes the model, `run` measures, `page` and `plot` write it down.
"""
