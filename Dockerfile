# The page and the HTTP interface on the light core: ONNX Runtime, the bundled weights, no PyTorch.
#   docker build -t gryphone .
#   docker run -p 8000:8000 gryphone                  http://localhost:8000
#   docker run -i gryphone recognize - < formula.png  any other command
ARG PYTHON=python:3.13-slim-trixie

FROM ${PYTHON} AS build
WORKDIR /src
COPY . .
RUN python3 -m venv /opt/gryphone \
 && /opt/gryphone/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && /opt/gryphone/bin/pip install --no-cache-dir -c constraints.txt "$(echo /wheels/*.whl)[serve]" \
 && /opt/gryphone/bin/pip uninstall -y pip

FROM ${PYTHON}
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin gryphone
COPY --from=build /opt/gryphone /opt/gryphone
ENV PATH=/opt/gryphone/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001
WORKDIR /tmp
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["gryphone"]
CMD ["serve", "--host", "0.0.0.0"]
