"""`make loadtest`: what each set-up does to waiting time, measured and drawn.

`run` starts the servers and drives Locust, `analysis` turns samples into figures,
`report` writes them down. `measurement` is what they hand to each other.
"""
