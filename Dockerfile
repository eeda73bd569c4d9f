# docker build -t normbwd . && docker run --rm --gpus all -v "$PWD:/work" normbwd bench --shapes 8192x4096
FROM nvidia/cuda:13.0.1-runtime-ubuntu24.04
# Triton compiles its launchers with gcc; compare checks revisions out with git. Ubuntu's archive keeps no older versions.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc git libc6-dev python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && git config --system --add safe.directory '*'
ENV PATH=/opt/normbwd/bin:$PATH
COPY . /src
RUN python3 -m venv /opt/normbwd && pip install --no-cache-dir -c /src/constraints.txt "/src[gpu]"
WORKDIR /work
ENTRYPOINT ["normbwd"]
CMD ["--help"]
