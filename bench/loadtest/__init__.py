"""`make loadtest`: response times of each set-up under Locust's users, with a report.

`run` starts the servers and Locust, `analysis` computes figures from samples, `report`
writes them.
"""
