"""Gunicorn's configuration for tests of the event-loop worker, without Basket's hooks.

Read as a file by Gunicorn; the environment variables are set by tests.support.front.
"""

import json
import os

from tests.support.tls import server_context

worker_class = "app.rims.worker.EventLoopWorker"
control_socket_disable = True
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None

if "FRONT_TLS" in os.environ:
    certfile = __file__

    def ssl_context(conf, default_ssl_context_factory):
        return server_context()


def post_worker_init(worker):
    """Shorten timeouts that are no setting of Gunicorn's."""
    worker.timeouts = json.loads(os.environ.get("FRONT_TIMEOUTS", "{}"))


def worker_int(worker):
    worker.log.info("hook worker_int")


def worker_abort(worker):
    worker.log.info("hook worker_abort")


def worker_exit(server, worker):
    server.log.info("hook worker_exit")
