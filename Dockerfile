# The daemon with the dependencies for running on several machines. Build: docker build -t loom .
FROM node:22-slim@sha256:83f487e0a63425e5b4d146fb5e5be574bcbe1b7b843d3ebafdd95eaf7767a7e5 AS built
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip && rm -rf /var/lib/apt/lists/*
WORKDIR /loom
COPY . .
RUN LOOM_WEB=require pip wheel --no-deps --wheel-dir /wheels .

FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
RUN apt-get update && apt-get install -y --no-install-recommends tesseract-ocr && rm -rf /var/lib/apt/lists/*
COPY --from=built /wheels /wheels
COPY requirements.lock /tmp/requirements.lock
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements.lock \
    && pip install --no-cache-dir --no-deps /wheels/loom_runtime-*.whl && rm -rf /wheels /tmp/requirements.lock \
    && useradd --create-home --uid 10001 loom && install -d -o loom -g loom -m 0700 /data
USER loom
ENV LOOM_HOME=/data LOOM_SERVER__HOST=0.0.0.0
WORKDIR /data
VOLUME /data
EXPOSE 5666
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen(u.Request('http://127.0.0.1:5666/healthz'))"]
# It listens outside of the container only with a password: set LOOM_SERVER__PASSWORD.
ENTRYPOINT ["loom"]
CMD ["serve"]
