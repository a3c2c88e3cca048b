"""`make loadtest`: response times of each set-up under thinking users, with a report.

`run` starts the servers and drives them, `tables` and `report` write what was measured.
"""
