# TokenPeak's controller: what `pip install` of the wheel gives, and an SSH client. GPU nodes need nothing of this.
#   docker build -t tokenpeak .
#   docker run --rm -it -v "$PWD":/work -v ~/.ssh:/home/tokenpeak/.ssh:ro tokenpeak init
# BASE is any image of Debian or Ubuntu with Python 3.11 or newer, pip and venv.
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS wheel
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_CERT
WORKDIR /src
COPY requirements.lock .
# The versions of the lock, for hatchling as for all that follows.
RUN python3 -m venv /build && sed -n '/^[a-z0-9]/{s/\[[^]]*\]==/==/;s/ *\\$//;p}' requirements.lock >constraints.txt && \
    /build/bin/pip install -q --no-cache-dir -c constraints.txt hatchling
COPY . .
RUN /build/bin/hatchling build -t wheel -d /wheel

FROM ${BASE}
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_CERT
# The user whose files /work and ~/.ssh hold: docker build --build-arg UID=$(id -u)
ARG UID=1000
RUN command -v ssh >/dev/null || { apt-get update -qq && \
    apt-get install -y -qq --no-install-recommends openssh-client && rm -rf /var/lib/apt/lists/*; }
COPY --from=wheel /src/constraints.txt /wheel/*.whl /tmp/
RUN python3 -m venv /opt/tokenpeak && /opt/tokenpeak/bin/pip install -q --no-cache-dir -c /tmp/constraints.txt /tmp/*.whl && \
    rm /tmp/*.whl /tmp/constraints.txt && ln -s /opt/tokenpeak/bin/tokenpeak /usr/local/bin/tokenpeak && \
    mkdir -p /home/tokenpeak /work /state && chown ${UID} /home/tokenpeak /work /state && \
    echo "tokenpeak:x:${UID}:0:TokenPeak:/home/tokenpeak:/bin/bash" >>/etc/passwd
USER ${UID}
ENV HOME=/home/tokenpeak TOKENPEAK_HOME=/work TOKENPEAK_STATE=/state
WORKDIR /work
VOLUME ["/work", "/state"]
ENTRYPOINT ["tokenpeak"]
CMD ["--help"]
