# With CUDA by default; for a machine without a GPU:
#   docker build --build-arg DEVICE=cpu --tag basket:cpu .
# Run it (docs/deploy.md has more):
#   docker run --gpus all --publish 127.0.0.1:8000:8000 --stop-timeout 35 \
#     --volume "$PWD/models:/basket/models:ro" basket
FROM python:3.11-slim

# cuda or cpu. The CUDA libraries come as wheels; the host gives the driver.
ARG DEVICE=cuda

WORKDIR /basket
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

COPY requirements.txt ./
COPY requirements/cuda.txt requirements/
RUN case "$DEVICE" in \
        cuda) file=requirements/cuda.txt ;; \
        cpu) file=requirements.txt ;; \
        *) echo "DEVICE is cuda or cpu, not $DEVICE" >&2; exit 1 ;; \
    esac \
    && pip install --no-cache-dir --require-hashes -r "$file"

COPY app app
COPY models/digits models/digits
COPY wsgi.py gunicorn.conf.py ./

RUN useradd --system --no-create-home basket
USER basket

EXPOSE 8000
ENV GUNICORN_CMD_ARGS="--bind=0.0.0.0:8000"
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["gunicorn", "wsgi:app", "--threads=64"]
