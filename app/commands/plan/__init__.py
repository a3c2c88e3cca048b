"""`models plan`: how many servers hold a limit of response time, and what they cost.

`simulation` runs the server's own Batchers in virtual time, `search` finds the fewest
servers and the limit of one, `tables` writes what they found.
"""
