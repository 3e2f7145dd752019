# The worker with the command line: `waystation worker` by default, every other command by its name.
FROM python:3.12.13-slim-bookworm AS build
WORKDIR /src
RUN python -m pip install --no-cache-dir 'uv>=0.9,<1' && python -m venv /app
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY waystation waystation
COPY workflows workflows
COPY activities activities
COPY workers workers
# As constraints, so that the locked versions and hashes hold and the tools for development stay out.
RUN uv pip install --no-cache --python /app/bin/python --constraints requirements.lock .

FROM python:3.12.13-slim-bookworm
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/waystation waystation
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 WAYSTATION_HOME=/var/lib/waystation/home
RUN install --directory --owner waystation "$WAYSTATION_HOME"
USER waystation
WORKDIR /var/lib/waystation
VOLUME /var/lib/waystation/home
ENTRYPOINT ["waystation"]
CMD ["worker"]
