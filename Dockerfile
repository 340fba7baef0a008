# syntax=docker/dockerfile:1
# Every part of Millstream in one image: workers, trainer, gate, servers, and the MLflow server of the same version.
#   docker build -t millstream:local .                                    CPU
#   docker build --build-arg TORCH_INDEX=<index of CUDA builds> -t millstream:cuda .
ARG PYTHON=3.12.11-slim-bookworm

FROM python:${PYTHON} AS build
# A pip index with the build of torch to use; the package index itself has only the CUDA build for Linux (4.7 GB).
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/millstream
WORKDIR /source
COPY constraints.txt requirements-faust.txt ./
RUN torch="$(grep -i '^torch==' constraints.txt | cut -d+ -f1)" \
    && /opt/millstream/bin/pip install --index-url "${TORCH_INDEX}" "${torch}"
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY capture ./capture
COPY streams ./streams
COPY graders ./graders
COPY trainer ./trainer
COPY deploy ./deploy
COPY console ./console
COPY examples ./examples
COPY millstream ./millstream
RUN sed 's/+cpu$//; /^torch==/d' constraints.txt > /tmp/constraints.txt \
    && /opt/millstream/bin/pip install -c /tmp/constraints.txt '.[all]' \
    && /opt/millstream/bin/pip install --no-deps -r requirements-faust.txt \
    && find /opt/millstream -name __pycache__ -prune -exec rm -rf {} +

FROM python:${PYTHON}
# bubblewrap: the sandbox of code that arrives as data.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin millstream \
    && install -d -o millstream -g millstream /data /mlflow /config
COPY --from=build /opt/millstream /opt/millstream
COPY --chmod=755 ops/docker/probe.py /usr/local/bin/millstream-probe
ENV PATH=/opt/millstream/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    DO_NOT_TRACK=1 MLFLOW_DISABLE_TELEMETRY=true HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1
USER 10001:10001
WORKDIR /data
ENTRYPOINT ["millstream", "--settings", "/config/millstream.toml"]
CMD ["--help"]
