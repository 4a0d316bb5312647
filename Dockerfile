# A service for saved models: docker run --read-only -p 127.0.0.1:8080:8080 -v "$PWD/tagger:/models/tagger:ro" IMAGE /models/tagger
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
# Models that need PyTorch: --build-arg EXTRAS=serve,torch
ARG EXTRAS=serve
RUN python -m venv /opt/trelliswork \
 && /opt/trelliswork/bin/python -m pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

FROM python:3.11-slim
COPY --from=build /opt/trelliswork /opt/trelliswork
ENV PATH=/opt/trelliswork/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TRELLISWORK_CACHE_DIR=/opt/trelliswork/kernels
# Kernels are compiled here, for the processor of this machine; at run time they are only read.
RUN trelliswork warmup \
 && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin trelliswork
USER 10001:10001
WORKDIR /models
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["trelliswork", "serve", "--host", "0.0.0.0", "--allow-remote", "--port", "8080"]
CMD ["--help"]
