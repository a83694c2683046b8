# The image of the gateway: Python, the pinned packages and Penstock; no shell, no package manager, not root.
#   scripts/image -t penstock
#   docker run --read-only --tmpfs /tmp -v penstock:/var/lib/penstock -p 8080:8080 -e PENSTOCK_KEY=… -e OPENAI_API_KEY=… penstock
# scripts/image pins both images by digest (deploy/images.toml); `docker build` alone takes these tags. They can be replaced, by those
# of your own registry for example. Their Pythons must have the same version, because the packages are installed by the first
# and run by the second.
ARG BUILD_IMAGE=docker.io/library/python:3.11-slim-bookworm
ARG BASE_IMAGE=gcr.io/distroless/python3-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements.txt requirements-image.txt ./
RUN python3 -m venv tools && \
    tools/bin/pip install --quiet --only-binary :all: --require-hashes -r requirements.txt && \
    tools/bin/pip install --quiet --only-binary :all: --require-hashes --no-compile --target /penstock -r requirements-image.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY src src
RUN tools/bin/python -m hatchling build -t wheel -d wheels && \
    tools/bin/pip install --quiet --no-deps --no-compile --target /penstock wheels/*.whl && \
    rm -rf /penstock/bin && \
    python3 -m compileall -q --invalidation-mode unchecked-hash /penstock && \
    mkdir -p /state/var/lib/penstock /state/etc/penstock
COPY deploy/health.py /penstock/health.py
COPY deploy/penstock.toml /state/etc/penstock/penstock.toml

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="Penstock" \
      org.opencontainers.image.description="A streaming-first gateway for language models" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /penstock /opt/penstock
COPY --from=build --chown=65532:65532 /state/ /
ENV PYTHONPATH=/opt/penstock PYTHONDONTWRITEBYTECODE=1 PENSTOCK_STATE=/var/lib/penstock PENSTOCK_IMAGE=1
WORKDIR /var/lib/penstock
USER 65532:65532
VOLUME /var/lib/penstock
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["/usr/bin/python3", "/opt/penstock/health.py", "8080"]
ENTRYPOINT ["/usr/bin/python3", "-m", "penstock"]
CMD ["serve", "--config", "/etc/penstock/penstock.toml"]
