"""Gunicorn's side of Basket: a worker that serves an ASGI application.

It knows HTTP and ASGI, and no models. Of Gunicorn it imports what that documents:
`gunicorn.workers.base`. What needs undocumented names of the arbiter stands in
`gunicorn_arbiter`, and nowhere else.
"""
