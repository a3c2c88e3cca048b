# With CUDA by default; for a machine without a GPU:
#   docker build --build-arg DEVICE=cpu --tag basket:cpu .
# Run it (docs/deploy.md has more):
#   docker run --gpus all --publish 127.0.0.1:8000:8000 --stop-timeout 35 \
#     --volume "$PWD/models:/basket/models:ro" basket

# The same base each time; docs/deploy.md says how to take a newer one.
ARG BASE=python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

# The pins of the device in two files, so that TensorFlow and CUDA, most of the image,
# are a layer that stays while other pins change. Left out: libclang, which TensorFlow
# names and never imports.
FROM ${BASE} AS pins
# cuda or cpu. The CUDA libraries come as wheels; the host gives the driver.
ARG DEVICE=cuda
COPY requirements.txt /pins/from/cpu.txt
COPY requirements/cuda.txt /pins/from/
RUN test -f "/pins/from/$DEVICE.txt" \
        || { echo "DEVICE is cuda or cpu, not $DEVICE" >&2; exit 1; }; \
    awk '/^[a-z]/ { file = /^(tensorflow\[|tensorflow=|nvidia-.*-cu12)/ ? "large" : "rest" } \
        /^libclang==/ { file = "" } \
        file { print > ("/pins/" file ".txt") }' "/pins/from/$DEVICE.txt"

FROM ${BASE}
# An init as process 1: it passes SIGTERM on from the first moment, when Gunicorn has no
# handler for it yet, and a process 1 without a handler would ignore it.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/cache/apt/* /var/lib/apt/lists/*
# A number, because Kubernetes' runAsNonRoot can't check a name.
RUN useradd --uid 10001 --user-group --no-create-home basket
# The standard library comes without bytecode, and the container's user can't write any.
RUN python -m compileall -q --invalidation-mode unchecked-hash \
    "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

# The pins name all packages, so none is resolved. include/ is for building against
# TensorFlow.
RUN --mount=type=bind,from=pins,source=/pins/large.txt,target=/tmp/large.txt \
    pip install --no-cache-dir --no-deps --require-hashes -r /tmp/large.txt \
    && rm -r "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tensorflow/include"
RUN --mount=type=bind,from=pins,source=/pins/rest.txt,target=/tmp/rest.txt \
    pip install --no-cache-dir --no-deps --require-hashes -r /tmp/rest.txt

WORKDIR /basket
COPY models/digits models/digits
COPY wsgi.py gunicorn.conf.py ./
COPY app app
RUN python -m compileall -q --invalidation-mode unchecked-hash .

USER 10001:10001
LABEL org.opencontainers.image.title="Basket" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.description="Serves Keras models over HTTP in batches"
EXPOSE 8000
ENV GUNICORN_CMD_ARGS="--bind=0.0.0.0:8000"
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["tini", "--"]
CMD ["gunicorn", "wsgi:app", "--threads=64"]
